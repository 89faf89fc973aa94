// graphile-worker on PostgreSQL with its local queue and batched completion. Understands the commands of __main__.py.
const { fork } = require("child_process");
const { Client } = require("pg");
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { mark, payload, sleep } = require("./job.cjs");

const CHUNK = 1000;
const HOUR_MS = 3_600_000;
const connectionString = process.env.BENCH_PG_URL;
const logger = new Logger(() => () => {});

async function reset() {
  const server = new Client({ connectionString: connectionString.replace(/bench$/, "postgres") });
  await server.connect();
  await server.query("drop database if exists bench with (force)");
  await server.query("create database bench");
  await server.end();
  await runMigrations({ connectionString, logger });
}

async function work() {
  const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const worker = { connectionString, logger, concurrentJobs: 24, maxPoolSize: 12, ...batching };
  await run({ preset: { worker }, taskList: { noop: async (job) => mark(job.i, job.t) } });
}

function workTwice() {
  for (let copy = 0; copy < 2; copy++) fork(__filename, ["worker-copy"]);
}

async function inChunks(jobs, put) {
  for (let start = 0; start < jobs; start += CHUNK) {
    const length = Math.min(CHUNK, jobs - start);
    await put(Array.from({ length }, (_, offset) => payload(start + offset)));
  }
}

async function paced(jobs, stepMs, put) {
  const began = performance.now();
  for (let index = 0; index < jobs; index++) {
    await sleep(Math.max(0, began + index * stepMs - performance.now()));
    await put(payload(index));
  }
}

async function fromCallers(callers, seconds, put) {
  const endsAt = performance.now() + seconds * 1000;
  let jobs = 0;
  const caller = async () => {
    while (performance.now() < endsAt) await put(payload(jobs++));
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return jobs;
}

async function produce(utils, command, first, second) {
  const put = (job) => utils.addJob("noop", job);
  const putMany = (jobs, extra) => utils.addJobs(jobs.map((job) => ({ identifier: "noop", payload: job, ...extra })));
  if (command === "callers") return fromCallers(Number(first), Number(second), put);
  const n = command === "latency" ? Math.round(first / second) : Number(first);
  if (command === "enqueue") for (let index = 0; index < n; index++) await put(payload(index));
  else if (command === "bulk") await inChunks(n, putMany);
  else if (command === "later") await inChunks(n, (jobs) => putMany(jobs, { runAt: new Date(Date.now() + HOUR_MS) }));
  else if (command === "latency") await paced(n, second * 1000, put);
  else throw new Error(`no command ${command}`);
  return n;
}

async function answer(command, first, second) {
  if (command === "reset") return { reset: await reset().then(() => true) };
  const utils = await makeWorkerUtils({ connectionString, logger });
  const began = performance.now();
  const n = await produce(utils, command, first, second);
  const seconds = (performance.now() - began) / 1000;
  await utils.release();
  return { n, seconds };
}

const [command, first, second] = process.argv.slice(2);
if (command === "worker") workTwice();
else if (command === "worker-copy") work();
else answer(command, first, second).then((found) => console.log(JSON.stringify(found)));
