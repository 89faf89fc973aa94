"""The process that runs user code: `python -m penstock.worker.executor`, started by an agent and ending with it."""
