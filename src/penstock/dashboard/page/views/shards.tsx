/** Shards: the stores of jobs, and whether they answer. */

import type { JSX } from "preact";
import { Show, useLoad } from "../load";
import type { ShardList } from "../schema";
import { count, Shape, STATES, Text, Time } from "../text";

export default function Shards(): JSX.Element {
  const loaded = useLoad<ShardList>("v1/shards", 2000);
  return (
    <>
      <h1 tabIndex={-1}>Shards</h1>
      <Show of={loaded} lines={3}>
        {(read) => (
          <table class="card">
            <thead><tr><th scope="col" class="num">Shard</th><th scope="col">Health</th><th scope="col">State</th><th scope="col" class="num">Weight</th><th scope="col">Jobs</th><th scope="col">Address</th></tr></thead>
            <tbody>
              {read.shards.map((one) => (
                <tr key={one.number} data-row>
                  <th scope="row" class="num">{one.number}</th>
                  <td data-label="Health">{one.well ? "answers" : <span class="state-failed">does not answer</span>} {one.since ? <span class="muted">since <Time at={one.since} /></span> : null}{one.reason ? <div class="small"><Text of={one.reason} /></div> : null}</td>
                  <td data-label="State">{one.state}{one.keyed ? <span class="muted">, takes keys</span> : null}</td>
                  <td class="num" data-label="Weight">{one.weight}</td>
                  <td data-label="Jobs">{one.jobs ? <span class="inline-states">{STATES.filter((state) => one.jobs![state]).map((state) => <span key={state} title={state}><Shape of={state} />{count(one.jobs![state]!)}<span class="hidden"> {state}</span></span>)}{Object.keys(one.jobs).length ? null : "none"}</span> : <span class="muted">not counted</span>}</td>
                  <td data-label="Address">{one.url ? <code><Text of={one.url} /></code> : <span class="muted">–</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Show>
    </>
  );
}
