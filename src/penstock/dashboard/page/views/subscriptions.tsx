/** Subscriptions: who is told of jobs' events. */

import type { JSX } from "preact";
import { Command } from "../dialogs";
import { Empty, Show, useLoad } from "../load";
import type { SubscriptionItem, SubscriptionList } from "../schema";
import { Text, Time } from "../text";

/** The filter of a subscription, in words. */
const filterWords = ({ filter }: SubscriptionItem): string =>
  (["types", "queues", "states", "tags"] as const).filter((name) => filter[name]?.length).map((name) => `${name} ${filter[name]!.join(", ")}`).join("; ") || "all events";

/** Where a sink is, whatever its kind calls that. */
const sinkWords = (sink: object): string => Object.entries(sink).filter(([name, value]) => name !== "kind" && typeof value === "string").map(([, value]) => String(value)).join(" ");

export default function Subscriptions(): JSX.Element {
  const loaded = useLoad<SubscriptionList>("v1/subscriptions", 5000);
  return (
    <>
      <h1 tabIndex={-1}>Subscriptions</h1>
      <Show of={loaded} lines={3}>
        {(read) => read.subscriptions.length ? (
          <table class="card">
            <thead><tr><th scope="col">Subscription</th><th scope="col">State</th><th scope="col">Sink</th><th scope="col">Events</th><th scope="col">Changed</th></tr></thead>
            <tbody>
              {read.subscriptions.map((one) => (
                <tr key={one.name} data-row>
                  <th scope="row"><Text of={one.name} /></th>
                  <td data-label="State">{one.state}{one.reason ? <span class="muted"> <Text of={one.reason} /></span> : null}</td>
                  <td data-label="Sink">{one.sink.kind} <code><Text of={sinkWords(one.sink)} /></code></td>
                  <td data-label="Events"><Text of={filterWords(one)} /></td>
                  <td data-label="Changed"><Time at={one.changed_at} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : <Empty><p>Nobody is told of events yet. To be told:</p><Command text="penstock subscriptions create orders https://example.com/hook" /></Empty>}
      </Show>
    </>
  );
}
