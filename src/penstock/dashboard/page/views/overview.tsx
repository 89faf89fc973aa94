/** Overview: what waits, whether it gets better, and who works on it. */

import type { JSX } from "preact";
import { Command } from "../dialogs";
import { History } from "../history";
import { digest, liveState, staleSeconds } from "../live";
import { Empty, Missing, Notice, Waiting } from "../load";
import type { HistoryStep, LiveDigest, State } from "../schema";
import { count, Link, NameLink, Shape, span, Text } from "../text";
import { PauseMark } from "./queues";

export default function Overview(): JSX.Element {
  const read = digest.value;
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      {liveState.value === "stale" ? <Notice kind="warn">As of {staleSeconds.value} s ago; trying again.</Notice> : null}
      {read ? <Present read={read} /> : <Waiting lines={10} />}
    </>
  );
}

function Present({ read }: { read: LiveDigest }): JSX.Element {
  const fleets = read.fleets.map((one) => one.name);
  const bound = read.fleets.length ? read.fleets.reduce((sum, one) => sum + one.max, 0) : null;
  const nothingYet = Object.values(read.jobs).every((jobs) => !jobs) && read.queues.length === 0;
  return (
    <>
      <Missing shards={read.missing_shards} />
      {read.fleets.filter((one) => one.trouble).map((one) => (
        <Notice key={one.name} kind="warn">Fleet <NameLink kind="fleets" name={one.name} /> cannot start workers: <Text of={one.trouble!} /></Notice>
      ))}
      <Figures read={read} />
      <History title="Waiting jobs above, workers below" fleets={fleets} bound={bound} />
      {nothingYet ? <FirstSteps /> : null}
      <div class="columns">
        <BusyQueues read={read} />
        <FleetsNow read={read} />
      </div>
    </>
  );
}

/** The last whole minute of the history. */
function lastMinute(steps: HistoryStep[] | null): { done: number; failed: number; wait: number | null } | null {
  if (!steps?.length) return null;
  const minute = steps.slice(0, -1).slice(-6);
  const waits = minute.map((one) => one.wait?.p95).filter((one) => one != null);
  return {
    done: minute.reduce((sum, one) => sum + one.succeeded, 0),
    failed: minute.reduce((sum, one) => sum + one.failed, 0),
    wait: waits.length ? Math.max(...waits) : null,
  };
}

function Figures({ read }: { read: LiveDigest }): JSX.Element {
  const minute = lastMinute(read.recent);
  const ready = read.workers["ready"] ?? 0;
  const wanted = read.fleets.reduce<number | null>((sum, one) => (sum === null || one.desired === null ? null : sum + one.desired), 0);
  const jobs = (state: State) => read.jobs[state] ?? 0;
  return (
    <dl class="figures">
      <div><dt>waiting</dt><dd><Link to={["jobs"]} terms={{ q: "state:queued" }}>{count(jobs("queued"))}</Link></dd><dd class="small muted">{read.oldest_seconds === null ? "nothing waits" : `oldest ${span(read.oldest_seconds)}`}</dd></div>
      <div><dt>running</dt><dd><Link to={["jobs"]} terms={{ q: "state:running" }}>{count(jobs("running"))}</Link></dd><dd class="small muted">of {count(read.capacity)} at once</dd></div>
      <div><dt>succeeded a minute</dt><dd>{minute ? count(minute.done) : "–"}</dd><dd class="small muted">in the last minute</dd></div>
      <div class={minute?.failed ? "bad" : undefined}><dt>failed a minute</dt><dd>{minute?.failed ? <Shape of="failed" /> : null}{minute ? count(minute.failed) : "–"}</dd><dd class="small muted"><Link to={["jobs"]} terms={{ q: "state:failed" }}>{count(jobs("failed"))} in all</Link></dd></div>
      <div><dt>start after due, 95 %</dt><dd>{minute?.wait != null ? span(minute.wait) : "–"}</dd><dd class="small muted">{minute?.wait != null ? "of those that started" : "nothing started"}</dd></div>
      <div><dt>workers</dt><dd><Link to={["workers"]}>{count(ready)}</Link></dd><dd class="small muted">{wanted === null ? "no autoscaler acts" : `${count(wanted)} wanted`}</dd></div>
    </dl>
  );
}

function FirstSteps(): JSX.Element {
  return (
    <Empty>
      <p>No job has come yet. Submit one from here, or from a terminal:</p>
      <Command text="penstock jobs submit add a=1 b=2 --wait" />
    </Empty>
  );
}

const SHOWN_QUEUES = 12;

function BusyQueues({ read }: { read: LiveDigest }): JSX.Element {
  const shown = read.queues.slice(0, SHOWN_QUEUES);
  const more = read.queues.length - shown.length + read.more_queues;
  return (
    <section class="card" aria-labelledby="queues-now">
      <header><h2 id="queues-now">Queues</h2></header>
      {shown.length ? (
        <table>
          <thead><tr><th scope="col">Queue</th><th scope="col" class="num">Waiting</th><th scope="col" class="num">Oldest</th><th scope="col" class="num">Running</th><th scope="col" class="num">Failed</th></tr></thead>
          <tbody>
            {shown.map((queue) => (
              <tr key={queue.name} data-row>
                <th scope="row"><NameLink kind="queues" name={queue.name} /> <PauseMark of={queue} /></th>
                <td class="num" data-label="Waiting">{count(queue.jobs.queued ?? 0)}</td>
                <td class="num" data-label="Oldest">{queue.oldest_seconds === null ? "–" : span(queue.oldest_seconds)}</td>
                <td class="num" data-label="Running">{count(queue.jobs.running ?? 0)}</td>
                <td class="num" data-label="Failed">{count(queue.jobs.failed ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : <Empty>No queue yet: a job, or a worker that declares a type, makes one.</Empty>}
      {more > 0 ? <p class="small"><Link to={["queues"]}>{count(more)} more</Link></p> : null}
    </section>
  );
}

function FleetsNow({ read }: { read: LiveDigest }): JSX.Element {
  return (
    <section class="card" aria-labelledby="fleets-now">
      <header><h2 id="fleets-now">Fleets</h2></header>
      {read.fleets.length ? (
        <table>
          <thead><tr><th scope="col">Fleet</th><th scope="col" class="num">Busy</th><th scope="col" class="num">Idle</th><th scope="col" class="num">Wanted</th><th scope="col">Why</th></tr></thead>
          <tbody>
            {read.fleets.map((fleet) => (
              <tr key={fleet.name} data-row>
                <th scope="row"><NameLink kind="fleets" name={fleet.name} /></th>
                <td class="num" data-label="Busy">{fleet.workers["busy"] ?? "–"}</td>
                <td class="num" data-label="Idle">{fleet.workers["idle"] ?? "–"}</td>
                <td class="num" data-label="Wanted">{fleet.desired ?? "–"} <span class="muted">of {fleet.max}</span></td>
                <td data-label="Why">{fleet.paused ? "paused: nothing is started or stopped" : fleet.reason ? <Text of={fleet.reason} /> : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : <Empty>No fleet.</Empty>}
    </section>
  );
}
