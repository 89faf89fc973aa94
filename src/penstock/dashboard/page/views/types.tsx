/** Job types: what can be asked for. */

import type { JSX } from "preact";
import { Command } from "../dialogs";
import { Empty, Show, useLoad } from "../load";
import type { TypeItem, TypeList } from "../schema";
import { may } from "../server";
import { Brief, Link, NameLink, span } from "../text";

export const retryWords = ({ retry }: TypeItem): string => (retry.kind === "none" ? "none" : `${retry.kind}, ${retry.max_attempts} attempts`);

export default function Types(): JSX.Element {
  const loaded = useLoad<TypeList>("v1/types", 10_000);
  return (
    <>
      <h1 tabIndex={-1}>Types</h1>
      <Show of={loaded}>
        {(read) => read.types.length ? (
          <table class="card">
            <thead><tr><th scope="col">Type</th><th scope="col">About</th><th scope="col">Queue</th><th scope="col">Retries</th><th scope="col" class="num">Timeout</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
            <tbody>
              {read.types.map((one) => (
                <tr key={one.name} data-row>
                  <th scope="row"><NameLink kind="types" name={one.name} /></th>
                  <td data-label="About">{one.description ? <Brief of={one.description} /> : <span class="muted">–</span>}</td>
                  <td data-label="Queue"><NameLink kind="queues" name={one.queue} /></td>
                  <td data-label="Retries">{retryWords(one)}</td>
                  <td class="num" data-label="Timeout">{one.timeout_seconds === null ? "none" : span(one.timeout_seconds)}</td>
                  <td class="acts">{may("jobs:write") ? <Link to={["new"]} terms={{ type: one.name }} class="button small" label={`New job of type ${one.name}`}>New job</Link> : null}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : <Empty><p>No type is declared. A worker declares those of its app:</p><Command text="penstock worker module:app" /></Empty>}
      </Show>
    </>
  );
}
