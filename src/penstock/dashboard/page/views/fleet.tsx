/** One fleet: its past, its decisions and their reasons, and changing it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { confirm, quoted } from "../dialogs";
import { History } from "../history";
import { Notice, Show, useLoad } from "../load";
import { Decisions } from "../picture";
import type { FleetChange, FleetItem } from "../schema";
import { ask, may } from "../server";
import { count, span, Text, Time } from "../text";
import { queuesWords } from "./fleets";

export default function FleetView({ name }: { name: string }): JSX.Element {
  const path = `v1/fleets/${encodeURIComponent(name)}`;
  const loaded = useLoad<FleetItem>(path, 2000);
  const queues = loaded.data?.queues;
  return (
    <>
      <h1 tabIndex={-1}><Text of={name} /> <small>fleet</small></h1>
      <Show of={loaded} lines={5}>{(fleet) => <Present fleet={fleet} path={path} done={loaded.reload} />}</Show>
      <History
        title={queues?.length === 1 ? "Waiting jobs of its queue above, its workers below" : "All waiting jobs above, its workers below"}
        fleets={[name]} bound={loaded.data?.fleet.max ?? null} {...(queues?.length === 1 ? { queue: queues[0]! } : {})}
      />
      <section class="card" aria-labelledby="decisions">
        <header><h2 id="decisions">Decisions</h2><span class="muted">the last that changed something</span></header>
        {loaded.data?.decisions?.length ? <Decisions of={loaded.data.decisions.map((one) => ({ ...one, fleet: name })).reverse()} /> : <p class="muted">None yet.</p>}
      </section>
    </>
  );
}

function Present({ fleet, path, done }: { fleet: FleetItem; path: string; done: () => void }): JSX.Element {
  const workers = fleet.workers ?? {};
  const target = fleet.fleet.target_wait_seconds;
  return (
    <>
      {fleet.trouble ? <Notice kind="bad">Workers cannot be started now: <Text of={fleet.trouble} /></Notice> : null}
      {(fleet.faults ?? []).map((fault) => <Notice key={fault} kind="warn"><Text of={fault} /></Notice>)}
      {fleet.autoscaler ? null : <Notice>No autoscaler runs this fleet now: numbers are the last it told.</Notice>}
      <p class="lead"><strong>{fleet.paused ? "Paused: nothing is started or stopped." : fleet.reason ? <Text of={fleet.reason} /> : "Not observed yet."}</strong> {fleet.latest ? <span class="muted">decided <Time at={fleet.latest.at} /></span> : null}</p>
      <dl class="figures">
        {["busy", "idle", "starting", "draining"].map((state) => <div key={state}><dt>{state}</dt><dd>{workers[state] ?? "–"}</dd></div>)}
        <div><dt>wanted</dt><dd>{fleet.desired ?? "–"}</dd><dd class="small muted">{fleet.count != null ? "set by hand" : "by its policy"}</dd></div>
        <div><dt>bounds</dt><dd>{fleet.fleet.min ?? 0}–{fleet.fleet.max ?? "?"}</dd></div>
      </dl>
      <dl class="facts card">
        <div><dt>Queues</dt><dd><Text of={queuesWords(fleet)} /></dd></div>
        <div><dt>Aims at</dt><dd>{typeof target === "number" ? `a wait of ${span(target)}` : "its policy"}</dd></div>
        <div><dt>Workers run</dt><dd>{fleet.app ? <Text of={fleet.app} /> : "–"}</dd></div>
        <div><dt>Declared in</dt><dd><Text of={fleet.source} /></dd></div>
        <div><dt>Autoscaler</dt><dd>{fleet.autoscaler ? <Text of={fleet.autoscaler} /> : "none"}</dd></div>
        <div><dt>Since it was seen</dt><dd>{count(fleet.started ?? 0)} started, {count(fleet.stopped ?? 0)} let go</dd></div>
      </dl>
      {may("admin") ? <Change fleet={fleet} path={path} done={done} /> : null}
    </>
  );
}

function Change({ fleet, path, done }: { fleet: FleetItem; path: string; done: () => void }): JSX.Element {
  const [least, setLeast] = useState(String(fleet.fleet.min ?? 0));
  const [most, setMost] = useState(String(fleet.fleet.max ?? 10));
  const [workers, setWorkers] = useState(fleet.count == null ? "" : String(fleet.count));
  const name = quoted(fleet.name);
  const bounds = (event: Event) => {
    event.preventDefault();
    const change: FleetChange = { min: Number(least), max: Number(most) };
    confirm({
      title: "Change its bounds?",
      about: <p>From {fleet.fleet.min}–{fleet.fleet.max} to {least}–{most} workers, until it is reset.</p>,
      command: `penstock fleets set ${name} --min ${quoted(least)} --max ${quoted(most)}`,
      verb: "Change",
      act: () => ask(path, { method: "PATCH", body: change }).then(done),
      done: "Bounds changed",
    });
  };
  const scale = (value: number | "auto") =>
    confirm({
      title: value === "auto" ? "Leave it to its policy?" : `Let it have ${value} workers?`,
      about: <p>{value === "auto" ? "Its policy decides again how many workers it has." : "Whatever its policy says, until it is set to auto."}</p>,
      command: `penstock fleets scale ${name} ${value}`,
      verb: value === "auto" ? "Leave it to the policy" : "Scale",
      act: () => ask(`${path}/scale`, { method: "POST", body: { count: value } }).then(done),
      done: "Scaled",
    });
  const pause = fleet.paused ? "resume" : "pause";
  return (
    <details class="card">
      <summary>Change it</summary>
      <form class="fields" onSubmit={bounds}>
        <label>At least<input type="number" min={0} required value={least} onInput={(event) => setLeast(event.currentTarget.value)} /></label>
        <label>At most<input type="number" min={1} required value={most} onInput={(event) => setMost(event.currentTarget.value)} /></label>
        <button type="submit">Change bounds…</button>
      </form>
      <form class="fields" onSubmit={(event) => { event.preventDefault(); scale(Number(workers)); }}>
        <label>Workers, by hand<input type="number" min={0} required value={workers} onInput={(event) => setWorkers(event.currentTarget.value)} /></label>
        <button type="submit">Scale…</button>
        {fleet.count == null ? null : <button type="button" onClick={() => scale("auto")}>Leave it to its policy…</button>}
      </form>
      <button type="button" onClick={() => confirm({
        title: fleet.paused ? "Resume this fleet?" : "Pause this fleet?",
        about: <p>{fleet.paused ? "It is looked after again." : "No worker is started or stopped until it is resumed."}</p>,
        command: `penstock fleets ${pause} ${name}`,
        verb: fleet.paused ? "Resume" : "Pause",
        act: () => ask(`${path}/${pause}`, { method: "POST" }).then(done),
        done: fleet.paused ? "Resumed" : "Paused",
      })}>{fleet.paused ? "Resume…" : "Pause…"}</button>
    </details>
  );
}
