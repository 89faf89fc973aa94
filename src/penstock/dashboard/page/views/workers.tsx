/** Workers: those that are up, and those that were lost lately. */

import type { JSX } from "preact";
import { Command, confirm, quoted } from "../dialogs";
import { Empty, Show, useLoad } from "../load";
import type { Worker, WorkerList } from "../schema";
import { ask, may } from "../server";
import { Brief, Link, Text, Time } from "../text";

const ORDER = { ready: 0, draining: 1, lost: 2 };

export default function Workers(): JSX.Element {
  const loaded = useLoad<WorkerList>("v1/workers", 2000);
  return (
    <>
      <h1 tabIndex={-1}>Workers</h1>
      <Show of={loaded}>
        {(read) => read.workers.length ? <Table done={loaded.reload} workers={[...read.workers].sort((a, b) => ORDER[a.state ?? "ready"] - ORDER[b.state ?? "ready"])} /> : (
          <Empty><p>No worker is up. With <code>penstock up</code> they come with the work; elsewhere:</p><Command text="penstock worker module:app" /></Empty>
        )}
      </Show>
    </>
  );
}

/** The button that lets a worker finish its jobs and end. */
function Drain({ worker, done }: { worker: Worker; done: () => void }): JSX.Element | null {
  if (!may("admin") || worker.state !== "ready") return null;
  const ask_first = () =>
    confirm({
      title: "Drain this worker?",
      about: <p><Text of={worker.id} /> claims no more, finishes its {worker.running === 1 ? "job" : "jobs"} and ends. Its fleet may start another.</p>,
      command: `penstock workers drain ${quoted(worker.id)}`,
      verb: "Drain",
      act: () => ask(`v1/workers/${encodeURIComponent(worker.id)}/drain`, { method: "POST", body: {} }).then(done),
      done: "Asked to drain",
    });
  return <button type="button" class="small" onClick={ask_first}>Drain…<span class="hidden"> {worker.id}</span></button>;
}

function Table({ workers, done }: { workers: Worker[]; done: () => void }): JSX.Element {
  return (
    <table class="card">
      <thead><tr><th scope="col">Worker</th><th scope="col">State</th><th scope="col">Runs</th><th scope="col">Host</th><th scope="col">App</th><th scope="col">Types</th><th scope="col">Started</th><th scope="col">Seen</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
      <tbody>
        {workers.map((one) => (
          <tr key={one.id} data-row>
            <th scope="row" class="mono"><Text of={one.id} /></th>
            <td data-label="State"><span class={`worker ${one.state}`}>{one.state}</span></td>
            <td data-label="Runs" class="num">{one.state === "lost" ? "–" : <><meter min={0} max={one.capacity} value={one.running} aria-label={`${one.running} of ${one.capacity} jobs`} /> {one.running}/{one.capacity}</>}</td>
            <td data-label="Host"><Text of={one.host} /> <span class="muted">{one.pid}</span></td>
            <td data-label="App">{one.app ? <Text of={one.app} /> : "–"} <span class="muted">{one.version}</span></td>
            <td data-label="Types"><Brief of={one.types.join(", ")} most={60} /></td>
            <td data-label="Started"><Time at={one.started_at} /></td>
            <td data-label="Seen"><Time at={one.seen_at} /></td>
            <td class="acts"><Drain worker={one} done={done} /></td>
          </tr>
        ))}
      </tbody>
      <tfoot><tr><td colSpan={9} class="small muted">What they run: <Link to={["jobs"]} terms={{ q: "state:running" }}>running jobs</Link>. Fleets start and stop them: <Link to={["fleets"]}>fleets</Link>.</td></tr></tfoot>
    </table>
  );
}
