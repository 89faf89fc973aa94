// submit → wait → cancel → list with the client that openapi-typescript and openapi-fetch make of /openapi.json.
// Prints what it saw as JSON. Every call is checked against the generated types by `tsc --strict`.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

declare const process: { argv: string[] };
type Problem = components["schemas"]["Problem"];

const client = createClient<paths>({ baseUrl: process.argv[2] });

function good<T>(answer: { data?: T; error?: Problem }): T {
  if (answer.data === undefined) throw new Error(`${answer.error?.code}: ${answer.error?.detail}`);
  return answer.data;
}

const submitted = good(await client.POST("/v1/jobs", { body: { type: "mark", params: { n: 7 }, tags: ["typescript"] } }));
const ended = good(await client.GET("/v1/jobs/{job}", { params: { path: { job: submitted.id }, query: { wait: 60 } } }));

const later = good(await client.POST("/v1/jobs", { body: { type: "mark", params: { n: 8 }, delay_seconds: 3600, tags: ["typescript"] } }));
const cancelled = good(await client.POST("/v1/jobs/{job}/cancel", { params: { path: { job: later.id } } }));

const page = good(await client.GET("/v1/jobs", { params: { query: { tag: "typescript" } } }));
const refused = await client.POST("/v1/jobs", { body: { type: "no_such_type" } });

console.log(JSON.stringify({
  result: ended.result,
  states: [ended.state, cancelled.state],
  listed: page.jobs.map((job) => job.id),
  ids: [later.id, submitted.id],
  refused: refused.error?.code,
}));
