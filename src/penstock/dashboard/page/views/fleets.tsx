/** Fleets: workers that are scaled together. */

import type { JSX } from "preact";
import { Empty, Show, useLoad } from "../load";
import type { FleetItem, FleetList } from "../schema";
import { NameLink, Text } from "../text";

/** Which queues a fleet serves, in words. */
export const queuesWords = (fleet: FleetItem): string =>
  fleet.queues ? fleet.queues.join(", ") : fleet.except_queues?.length ? `all but ${fleet.except_queues.join(", ")}` : "all";

export default function Fleets(): JSX.Element {
  const loaded = useLoad<FleetList>("v1/fleets", 2000);
  return (
    <>
      <h1 tabIndex={-1}>Fleets</h1>
      <Show of={loaded}>
        {(read) => read.fleets.length ? (
          <table class="card">
            <thead><tr><th scope="col">Fleet</th><th scope="col">Queues</th><th scope="col" class="num">Busy</th><th scope="col" class="num">Idle</th><th scope="col" class="num">Starting</th><th scope="col" class="num">Wanted</th><th scope="col" class="num">Bounds</th><th scope="col">Why</th></tr></thead>
            <tbody>
              {read.fleets.map((fleet) => (
                <tr key={fleet.name} data-row>
                  <th scope="row"><NameLink kind="fleets" name={fleet.name} /> {fleet.paused ? <span class="tag paused">paused</span> : null}{fleet.count != null ? <span class="tag">by hand</span> : null}</th>
                  <td data-label="Queues"><Text of={queuesWords(fleet)} /></td>
                  <td class="num" data-label="Busy">{fleet.workers?.["busy"] ?? "–"}</td>
                  <td class="num" data-label="Idle">{fleet.workers?.["idle"] ?? "–"}</td>
                  <td class="num" data-label="Starting">{fleet.workers?.["starting"] ?? "–"}</td>
                  <td class="num" data-label="Wanted">{fleet.desired ?? "–"}</td>
                  <td class="num" data-label="Bounds">{fleet.fleet.min ?? 0}–{fleet.fleet.max ?? "?"}</td>
                  <td data-label="Why">{fleet.trouble ? <span class="state-failed"><Text of={fleet.trouble} /></span> : fleet.reason ? <Text of={fleet.reason} /> : <span class="muted">–</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : <Empty>No fleet: workers are started by hand here.</Empty>}
      </Show>
    </>
  );
}
