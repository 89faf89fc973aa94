/** Queues: how much waits in each, and holding one back. */

import type { JSX } from "preact";
import { confirm, quoted } from "../dialogs";
import { Empty, Missing, Show, useLoad } from "../load";
import type { QueueItem, QueueList } from "../schema";
import { ask, may } from "../server";
import { count, Link, NameLink, span, Text } from "../text";

export function PauseMark({ of }: { of: QueueItem }): JSX.Element | null {
  return of.paused ? <span class="tag paused">paused</span> : null;
}

/** The button that pauses a queue or resumes it. */
export function PauseQueue({ queue, done }: { queue: QueueItem; done: () => void }): JSX.Element | null {
  if (!may("queues")) return null;
  const verb = queue.paused ? "resume" : "pause";
  const ask_first = () =>
    confirm({
      title: queue.paused ? "Resume this queue?" : "Pause this queue?",
      about: queue.paused
        ? <p>Jobs of <Text of={queue.name} /> are handed out again.</p>
        : <p>No waiting job of <Text of={queue.name} /> is handed out until it is resumed. Running ones go on.</p>,
      command: `penstock queues ${verb} ${quoted(queue.name)}`,
      verb: queue.paused ? "Resume" : "Pause",
      act: () => ask(`v1/queues/${encodeURIComponent(queue.name)}/${verb}`, { method: "POST" }).then(done),
      done: `${queue.name} ${queue.paused ? "resumed" : "paused"}`,
    });
  return <button type="button" class="small" onClick={ask_first}>{queue.paused ? "Resume" : "Pause"}<span class="hidden"> {queue.name}</span></button>;
}

const jobsOf = (queue: QueueItem, state: "queued" | "running" | "scheduled" | "succeeded" | "failed"): JSX.Element => {
  const jobs = queue.jobs[state] ?? 0;
  return jobs ? <Link to={["jobs"]} terms={{ q: `queue:${queue.name} state:${state}` }} label={`${jobs} ${state} in ${queue.name}`}>{count(jobs)}</Link> : <span class="muted">0</span>;
};

export default function Queues(): JSX.Element {
  const loaded = useLoad<QueueList>("v1/queues", 2000);
  return (
    <>
      <h1 tabIndex={-1}>Queues</h1>
      <Show of={loaded}>
        {(read) => (
          <>
            <Missing shards={read.missing_shards} />
            {read.queues.length ? (
              <table class="card">
                <thead>
                  <tr>
                    <th scope="col">Queue</th><th scope="col" class="num">Waiting</th><th scope="col" class="num">Oldest</th>
                    <th scope="col" class="num">Running</th><th scope="col" class="num">Scheduled</th><th scope="col" class="num">Succeeded</th>
                    <th scope="col" class="num">Failed</th><th scope="col"><span class="hidden">Actions</span></th>
                  </tr>
                </thead>
                <tbody>
                  {read.queues.map((queue) => (
                    <tr key={queue.name} data-row>
                      <th scope="row"><NameLink kind="queues" name={queue.name} /> <PauseMark of={queue} /></th>
                      <td class="num" data-label="Waiting">{jobsOf(queue, "queued")}</td>
                      <td class="num" data-label="Oldest">{queue.oldest_seconds === null ? <span class="muted">–</span> : span(queue.oldest_seconds)}</td>
                      <td class="num" data-label="Running">{jobsOf(queue, "running")}</td>
                      <td class="num" data-label="Scheduled">{jobsOf(queue, "scheduled")}</td>
                      <td class="num" data-label="Succeeded">{jobsOf(queue, "succeeded")}</td>
                      <td class="num" data-label="Failed">{jobsOf(queue, "failed")}</td>
                      <td class="acts"><PauseQueue queue={queue} done={loaded.reload} /></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            ) : <Empty>No queue yet: a job, or a worker that declares a type, makes one.</Empty>}
          </>
        )}
      </Show>
    </>
  );
}
