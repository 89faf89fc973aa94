/** One queue: its past, its jobs by state, and the fleet that serves it. */

import type { JSX } from "preact";
import { History } from "../history";
import { Show, useLoad } from "../load";
import type { FleetList, QueueItem, TypeList } from "../schema";
import { count, Link, NameLink, Shape, span, STATES, Text } from "../text";
import { PauseMark, PauseQueue } from "./queues";

export default function Queue({ name }: { name: string }): JSX.Element {
  const loaded = useLoad<QueueItem>(`v1/queues/${encodeURIComponent(name)}`, 2000);
  const fleets = useLoad<FleetList>("v1/fleets");
  const types = useLoad<TypeList>("v1/types");
  const serving = (fleets.data?.fleets ?? []).filter((one) => (one.queues ? one.queues.includes(name) : !one.except_queues?.includes(name)));
  return (
    <>
      <h1 tabIndex={-1}><Text of={name} /> <small>queue</small></h1>
      <Show of={loaded} lines={3}>
        {(queue) => (
          <>
            <div class="actions">
              <PauseMark of={queue} />
              <PauseQueue queue={queue} done={loaded.reload} />
              <span class="muted">{queue.oldest_seconds === null ? "Nothing waits." : `The oldest has waited ${span(queue.oldest_seconds)}.`}</span>
            </div>
            <StateCounts jobs={queue.jobs} terms={`queue:${name}`} />
          </>
        )}
      </Show>
      <History title="Waiting jobs above, workers below" queue={name} fleets={serving.map((one) => one.name)} />
      <div class="columns">
        <section class="card">
          <header><h2>Served by</h2></header>
          <ul class="list">
            {serving.map((one) => <li key={one.name}><NameLink kind="fleets" name={one.name} /> <span class="muted">{one.reason ? <Text of={one.reason} /> : null}</span></li>)}
          </ul>
        </section>
        <section class="card">
          <header><h2>Types</h2></header>
          <ul class="list">
            {(types.data?.types ?? []).filter((one) => one.queue === name).map((one) => <li key={one.name}><NameLink kind="types" name={one.name} /></li>)}
          </ul>
        </section>
      </div>
    </>
  );
}

/** Jobs by state; each number leads to the jobs behind it. */
export function StateCounts({ jobs, terms }: { jobs: Record<string, number>; terms: string }): JSX.Element {
  return (
    <ul class="states">
      {STATES.map((state) => (
        <li key={state}>
          <Link to={["jobs"]} terms={{ q: `${terms} state:${state}`.trim() }}>
            <Shape of={state} />{state} <b class="num">{count(jobs[state] ?? 0)}</b>
          </Link>
        </li>
      ))}
    </ul>
  );
}
