"""AWS Lambda: the API, the sweep and the deliveries as functions, so that nothing runs while nothing is to be done.

One package, six entry points in `penstock.functions.handlers`, each with a role of its own. `Handler` in a template is,
for example, `penstock.functions.handlers.add`.

| name      | invoked by                                            | what it does             |
|-----------|-------------------------------------------------------|--------------------------|
| `add`     | HTTP API: POST /v1/jobs, POST /v1/jobs/batch          | adds jobs                |
| `query`   | HTTP API: GET /v1/jobs, GET /v1/jobs/{proxy+}         | reads jobs               |
| `cancel`  | HTTP API: POST /v1/jobs/{job}/cancel                  | cancels jobs             |
| `rest`    | HTTP API: $default                                    | every other route        |
| `sweep`   | EventBridge Scheduler each minute; the wake-up queue  | a step of each service   |
| `publish` | the table's stream, which only wakes it               | delivers events to sinks |

HTTP APIs send payload format 2.0. Settings come from the environment (`PENSTOCK_STORE_URL`, `PENSTOCK_BROKER_URL`,
`PENSTOCK_OBJECTS_URL`, …); every request needs an API key. `PENSTOCK_FUNCTIONS_WAKE_QUEUE` is the URL of the standard
SQS queue whose event source invokes `sweep`: `add`, `rest` and `sweep` send delayed messages there.
"""
