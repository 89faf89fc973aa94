/** One job: its state and why, its attempts, its values, its log and its files. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Command, copy, quoted } from "../dialogs";
import { viewKeys } from "../keyboard";
import { digest } from "../live";
import { Notice, Show, useLoad, type Loaded } from "../load";
import { addressOf } from "../route";
import type { EventPage, FileItem, LogLine, LogPage, QueueItem, State } from "../schema";
import { ask, may, Refused, urlOf, type Job } from "../server";
import { bytes, instant, JobLink, Link, NameLink, Shape, Span, span, StateMark, Text, Time } from "../text";
import { times } from "../settings";
import { actOn } from "./jobs";
import { PauseQueue } from "./queues";
import { Value } from "./value";

const ENDED = new Set<State>(["succeeded", "failed", "cancelled", "expired"]);

export default function JobView({ name }: { name: string }): JSX.Element {
  const [ended, setEnded] = useState(false);
  const loaded = useLoad<Job>(`v1/jobs/${encodeURIComponent(name)}`, ended ? 0 : 1000);
  const job = loaded.data;
  useEffect(() => setEnded(job !== undefined && ENDED.has(job.state)), [job?.state]);
  useEffect(() => {
    viewKeys.value = job ? { r: () => may("jobs:write") && actOn("retry", [job], loaded.reload), c: () => may("jobs:cancel") && actOn("cancel", [job], loaded.reload) } : {};
    return () => void (viewKeys.value = {});
  }, [job]);
  return (
    <>
      <h1 tabIndex={-1}>{job ? <><Text of={job.type} /> <small>job</small></> : "Job"}</h1>
      <Show of={loaded} lines={10}>{(found) => <Found job={found} loaded={loaded} />}</Show>
    </>
  );
}

function Found({ job, loaded }: { job: Job; loaded: Loaded<Job> }): JSX.Element {
  const ended = ENDED.has(job.state);
  return (
    <>
      <div class="actions">
        <StateMark of={job.state} />
        <span class="mono id whole">{job.id}</span>
        <button type="button" class="small" onClick={() => copy(job.id, "Id copied")}>Copy</button>
        {ended && may("jobs:write") ? <button type="button" onClick={() => actOn("retry", [job], loaded.reload)}>Retry…</button> : null}
        {!ended && may("jobs:cancel") ? <button type="button" onClick={() => actOn("cancel", [job], loaded.reload)}>Cancel…</button> : null}
        {may("jobs:write") ? <a class="button" href={addressOf(["new"], { type: job.type, like: job.id })}>New job like it</a> : null}
      </div>
      {job.cancel_requested && !ended ? <Notice kind="warn">It was asked to stop.</Notice> : null}
      {ended ? null : <Why job={job} reload={loaded.reload} />}
      {job.progress && !ended ? <Progress job={job} /> : null}
      <Course job={job} />
      {job.error && job.state !== "succeeded" ? <Errors job={job} /> : null}
      <div class="columns">
        <section class="card"><header><h2>Params</h2></header><Value text={job.params} name="params" /></section>
        <section class="card"><header><h2>Result</h2></header>{job.state === "succeeded" ? <Value text={job.result} name="result" /> : <p class="muted">{ended ? "It has none." : "Not yet."}</p>}</section>
      </div>
      <Files job={job} />
      <Log job={job} />
      <Facts job={job} />
    </>
  );
}

/** Why a job waits, and what would help. */
function Why({ job, reload }: { job: Job; reload: () => void }): JSX.Element | null {
  if (job.state === "running" || !job.reason) return null;
  const paused = job.reason === "queue paused";
  const queue = digest.value?.queues.find((one) => one.name === job.queue);
  const fleets = (digest.value?.fleets ?? []).filter((one) => one.reason);
  return (
    <section class="card why">
      <header><h2>Why it waits</h2></header>
      <p><strong><Text of={job.reason} /></strong>{job.state === "scheduled" ? <>: due <Time at={job.scheduled_at} /></> : null}</p>
      {paused ? <p>Its queue <NameLink kind="queues" name={job.queue} /> hands out nothing. <PauseQueue queue={queue ?? ({ name: job.queue, paused: true } as QueueItem)} done={reload} /></p> : null}
      {job.reason === "waiting for a free worker" && queue ? <p>{queue.jobs.queued ?? 0} wait in <NameLink kind="queues" name={job.queue} />, {queue.jobs.running ?? 0} run. {fleets.map((one) => <span key={one.name}><NameLink kind="fleets" name={one.name} /> has {one.desired ?? "?"} of at most {one.max} workers: <Text of={one.reason!} />. </span>)}</p> : null}
      {job.reason.startsWith("no worker") ? <><p>No worker that is up runs <NameLink kind="types" name={job.type} />. To start one:</p><Command text="penstock worker module:app" /></> : null}
      {job.reason === "no worker that is up takes these params" ? <p>The handlers that are up have another signature: deploy one that takes these params, or cancel the job.</p> : null}
    </section>
  );
}

function Progress({ job }: { job: Job }): JSX.Element {
  const { fraction, message } = job.progress!;
  return (
    <div class="progress">
      <progress value={fraction} max={1} aria-label="Progress" /> <span class="num">{Math.round(fraction * 100)} %</span> {message ? <Text of={message} /> : null}
    </div>
  );
}

/** What happened to it, move by move. */
function Course({ job }: { job: Job }): JSX.Element {
  const loaded = useLoad<EventPage>(`v1/jobs/${job.id}/events?limit=500`);
  const version = useRef(job.version);
  useEffect(() => {
    if (version.current !== job.version) loaded.reload();
    version.current = job.version;
  }, [job.version]);
  const events = loaded.data?.events ?? [];
  return (
    <section class="card" aria-labelledby="course">
      <header><h2 id="course">Course</h2><span class="muted">attempt {job.attempt} of {job.max_attempts}</span></header>
      <dl class="facts">
        <div><dt>Created</dt><dd><Time at={job.created_at} full /></dd></div>
        <div><dt>Due</dt><dd><Time at={job.scheduled_at} full /></dd></div>
        <div><dt>{job.attempt > 1 ? "Waited for its last attempt" : "Waited"}</dt><dd><Span from={job.scheduled_at} to={job.started_at ?? (ENDED.has(job.state) ? job.completed_at : null)} /></dd></div>
        <div><dt>Started</dt><dd><Time at={job.started_at} full /></dd></div>
        <div><dt>{job.attempt > 1 ? "Last attempt ran" : "Ran"}</dt><dd><Span from={job.started_at} to={job.completed_at} /></dd></div>
        <div><dt>Ended</dt><dd><Time at={job.completed_at} full /></dd></div>
        <div><dt>Worker</dt><dd>{job.worker ? <Text of={job.worker} /> : "–"}</dd></div>
      </dl>
      {events.length ? (
        <ol class="course">
          {events.map((event, number) => {
            const before = events[number - 1];
            const gap = before ? (Date.parse(event.at) - Date.parse(before.at)) / 1000 : 0;
            return (
              <li key={event.version}>
                <Shape of={event.after} />
                <span class="num">{instant(new Date(event.at), times.value === "utc" ? "utc" : "local", false)}</span>
                <span>{inWords(event.move, event.after, event.attempt)}</span>
                <span class="muted num">{before ? `after ${span(gap)}` : ""}</span>
                {event.reason ? <span class="muted"><Text of={event.reason} /></span> : null}
              </li>
            );
          })}
        </ol>
      ) : loaded.error ? <p class="small muted">{loaded.error.message}</p> : null}
    </section>
  );
}

/** A move in words. */
function inWords(move: string, after: State, attempt: number): string {
  switch (move) {
    case "submit": return after === "scheduled" ? "submitted, due later" : "submitted";
    case "tick": return "made by a tick of its schedule";
    case "dispatch": return "due";
    case "claim": return `attempt ${attempt} started`;
    case "settle": return after === "scheduled" ? `attempt ${attempt} errored, to be tried again` : `attempt ${attempt} ended: ${after}`;
    case "release": return "given back by its worker";
    case "reclaim": return "taken back from a lost worker";
    case "cancel": return after === "cancelled" ? "cancelled" : "asked to stop";
    case "expire": return "expired";
    default: return move;
  }
}

function Errors({ job }: { job: Job }): JSX.Element {
  const { error_class, code, message, traceback, attempt } = job.error!;
  return (
    <section class="card" aria-labelledby="error">
      <header><h2 id="error">Error{attempt ? ` of attempt ${attempt}` : ""}</h2></header>
      <p class="state-failed"><strong><Text of={error_class ?? code} /></strong>: <Text of={message} /></p>
      {traceback ? <Value text={traceback} name="traceback" json={false} /> : null}
    </section>
  );
}

function Files({ job }: { job: Job }): JSX.Element | null {
  if (!job.inputs.length && !job.outputs.length) return null;
  const list = (kind: "inputs" | "outputs", files: FileItem[]) =>
    files.map((file) => (
      <tr key={kind + file.name}>
        <th scope="row"><a href={urlOf(`v1/jobs/${job.id}/${kind}/${encodeURIComponent(file.name)}`)} download={file.name}><Text of={file.name} /></a></th>
        <td data-label="Kind">{kind === "inputs" ? "input" : "output"}</td>
        <td data-label="Content"><Text of={file.content_type} /></td>
        <td class="num" data-label="Size">{bytes(file.size)}</td>
      </tr>
    ));
  return (
    <section class="card" aria-labelledby="files">
      <header><h2 id="files">Files</h2></header>
      <table>
        <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Content</th><th scope="col" class="num">Size</th></tr></thead>
        <tbody>{list("inputs", job.inputs)}{list("outputs", job.outputs)}</tbody>
      </table>
    </section>
  );
}

const WINDOW = 500;
const ANSI = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

/** The log: its last lines, and earlier ones on demand; more is read while the job runs. */
function Log({ job }: { job: Job }): JSX.Element {
  const [lines, setLines] = useState<LogLine[]>([]);
  const [shown, setShown] = useState(WINDOW);
  const [error, setError] = useState("");
  const position = useRef(0);
  const reading = useRef(false);
  const read = async () => {
    if (reading.current) return;
    reading.current = true;
    try {
      for (let more = true; more; ) {
        const page = await ask<LogPage>(`v1/jobs/${job.id}/logs?after=${position.current}`);
        more = page.lines.length === 1000;
        position.current = page.position;
        if (page.lines.length) setLines((before) => [...before, ...page.lines]);
      }
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      setError(problem.message);
    } finally {
      reading.current = false;
    }
  };
  useEffect(() => void read(), [job.state, job.version, ENDED.has(job.state) ? null : digest.value?.at]);
  const visible = lines.slice(-shown);
  return (
    <section class="card" aria-labelledby="log">
      <header><h2 id="log">Log</h2><span class="muted">{lines.length === 1 ? "1 line" : `${lines.length} lines`}</span></header>
      {error ? <Notice kind="warn">{error}</Notice> : null}
      {lines.length > shown ? <button type="button" class="small" onClick={() => setShown(shown + WINDOW)}>{lines.length - shown} earlier lines</button> : null}
      {lines.length ? (
        <pre class="log" tabIndex={0} role="region" aria-label="Log lines">
          {visible.map((line, number) => (
            <div key={lines.length - visible.length + number}>
              <span class="muted">{instant(new Date(line.at), times.value === "utc" ? "utc" : "local", false)} </span>
              {job.max_attempts > 1 && line.attempt ? <span class="muted">{line.attempt} </span> : null}
              <span class={line.stream === "stderr" || line.stream === "ERROR" ? "state-failed" : "muted"}>{line.stream}</span>{" "}
              <Text of={line.text.replace(ANSI, "")} />
            </div>
          ))}
        </pre>
      ) : <p class="muted">It wrote nothing{ENDED.has(job.state) ? "" : " yet"}.</p>}
    </section>
  );
}

function Facts({ job }: { job: Job }): JSX.Element {
  const retry = job.retry_policy;
  return (
    <section class="card" aria-labelledby="facts">
      <header><h2 id="facts">Facts</h2></header>
      <dl class="facts">
        <div><dt>Queue</dt><dd><NameLink kind="queues" name={job.queue} /></dd></div>
        <div><dt>Type</dt><dd><NameLink kind="types" name={job.type} /></dd></div>
        <div><dt>Priority</dt><dd class="num">{job.priority}</dd></div>
        <div><dt>Retries</dt><dd>{retry.kind === "none" ? "none" : `${retry.kind}, ${retry.max_attempts} attempts`}</dd></div>
        <div><dt>Timeout</dt><dd>{job.timeout_seconds === null ? "none" : span(job.timeout_seconds)}</dd></div>
        {job.expires_at ? <div><dt>Expires</dt><dd><Time at={job.expires_at} full /></dd></div> : null}
        {job.schedule ? <div><dt>Schedule</dt><dd><NameLink kind="schedules" name={job.schedule} /> {job.tick_at ? <>tick of <Time at={job.tick_at} /></> : null}</dd></div> : null}
        {job.retry_of ? <div><dt>Retry of</dt><dd><JobLink id={job.retry_of} /></dd></div> : null}
        {job.tags.length ? <div><dt>Tags</dt><dd>{job.tags.map((tag) => <Link key={tag} to={["jobs"]} terms={{ q: `tag:${/\s/.test(tag) ? `"${tag}"` : tag}` }} class="tag"><Text of={tag} /></Link>)}</dd></div> : null}
        <div><dt>Fence</dt><dd class="num">{job.fence}</dd></div>
      </dl>
      <Command text={`penstock jobs show ${quoted(job.id)}`} />
    </section>
  );
}
