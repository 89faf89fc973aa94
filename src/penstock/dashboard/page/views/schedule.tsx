/** One schedule: its next ticks, what became of those that were, and running some again. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { confirm, quoted } from "../dialogs";
import { Show, useLoad } from "../load";
import type { BackfillResponse, PreviewResponse, TickPage } from "../schema";
import { ask, may, type Schedule } from "../server";
import { count, instant, JobLink, NameLink, relative, span, Text, Time } from "../text";
import { ScheduleActs, whenWords } from "./schedules";
import { Value } from "./value";

export default function ScheduleView({ name }: { name: string }): JSX.Element {
  const path = `v1/schedules/${encodeURIComponent(name)}`;
  const loaded = useLoad<Schedule>(path, 5000);
  const ticks = useLoad<TickPage>(`${path}/ticks?limit=50`, 5000);
  return (
    <>
      <h1 tabIndex={-1}><Text of={name} /> <small>schedule</small></h1>
      <Show of={loaded} lines={6}>
        {(one) => (
          <>
            <div class="actions">{one.paused ? <span class="tag paused">paused</span> : null}<ScheduleActs one={one} done={loaded.reload} /></div>
            <dl class="facts card">
              <div><dt>When</dt><dd class={one.cron ? "mono" : ""}><Text of={whenWords(one)} /></dd></div>
              {one.timezone ? <div><dt>Zone</dt><dd><Text of={one.timezone} /></dd></div> : null}
              <div><dt>Next tick</dt><dd><Time at={one.next_tick_at} full /></dd></div>
              <div><dt>Last tick</dt><dd><Time at={one.last_tick_at} full /></dd></div>
              <div><dt>Type</dt><dd><NameLink kind="types" name={one.type} /></dd></div>
              {one.queue ? <div><dt>Queue</dt><dd><NameLink kind="queues" name={one.queue} /></dd></div> : null}
              <div><dt>Overlap</dt><dd>{one.overlap}</dd></div>
              <div><dt>Misfire</dt><dd>{one.misfire}, after {span(one.misfire_grace_seconds)}</dd></div>
              {one.jitter_seconds ? <div><dt>Jitter</dt><dd>{span(one.jitter_seconds)}</dd></div> : null}
              {one.start_at ? <div><dt>From</dt><dd><Time at={one.start_at} full /></dd></div> : null}
              {one.end_at ? <div><dt>Until</dt><dd><Time at={one.end_at} full /></dd></div> : null}
            </dl>
            <div class="columns">
              <Next one={one} path={path} />
              <section class="card"><header><h2>Params</h2></header><Value text={one.params} name="params" /></section>
            </div>
            {may("schedules") ? <Backfill one={one} path={path} done={ticks.reload} /> : null}
          </>
        )}
      </Show>
      <section class="card" aria-labelledby="ticks">
        <header><h2 id="ticks">Ticks</h2></header>
        <Show of={ticks}>
          {(read) => read.ticks.length ? (
            <table>
              <thead><tr><th scope="col">Tick</th><th scope="col">Became</th></tr></thead>
              <tbody>
                {read.ticks.map((tick) => (
                  <tr key={tick.at} data-row>
                    <th scope="row"><Time at={tick.at} full /></th>
                    <td data-label="Became">{tick.job ? <JobLink id={tick.job} /> : <span class="muted">skipped: <Text of={tick.skipped ?? "no reason"} /></span>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : <p class="muted">No tick has come yet.</p>}
        </Show>
      </section>
    </>
  );
}

/** How far a zone is from UTC then, as its clocks show it. */
function offsetIn(zone: string, at: Date): string {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "longOffset" }).formatToParts(at).find((part) => part.type === "timeZoneName")?.value ?? "";
  } catch {
    return "";
  }
}

function inZone(zone: string, at: Date): string {
  try {
    return new Intl.DateTimeFormat("sv", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }).format(at);
  } catch {
    return instant(at, "utc");
  }
}

/** The next ticks; where the clocks of its zone change between two of them, that is said. */
function Next({ one, path }: { one: Schedule; path: string }): JSX.Element {
  const loaded = useLoad<PreviewResponse>(`${path}/preview?count=10`);
  const zone = one.timezone ?? "UTC";
  return (
    <section class="card" aria-labelledby="next">
      <header><h2 id="next">Next ticks</h2><span class="muted"><Text of={zone} /></span></header>
      <Show of={loaded} lines={5}>
        {(read) => read.ticks.length ? (
          <ol class="ticks">
            {read.ticks.map((tick, number) => {
              const at = new Date(tick);
              const before = read.ticks[number - 1];
              const offset = offsetIn(zone, at);
              const changes = before !== undefined && offsetIn(zone, new Date(before)) !== offset;
              return (
                <li key={tick}>
                  <span class="num">{inZone(zone, at)}</span> <span class="muted">{relative(at.getTime())}</span>
                  {changes ? <span class="tag">clocks change to {offset}</span> : null}
                </li>
              );
            })}
          </ol>
        ) : <p class="muted">None to come.</p>}
      </Show>
    </section>
  );
}

function Backfill({ one, path, done }: { one: Schedule; path: string; done: () => void }): JSX.Element {
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const [made, setMade] = useState<number | null>(null);
  const iso = (text: string): string => new Date(text).toISOString();
  const ask_first = (event: Event) => {
    event.preventDefault();
    confirm({
      title: "Run past ticks?",
      about: <p>Every tick of <Text of={one.name} /> from {from} to {to}, by your clock, that has neither a job nor a record gets a job now.</p>,
      command: `penstock schedules backfill ${quoted(one.name)} --from ${iso(from)} --to ${iso(to)}`,
      verb: "Run them",
      act: async () => {
        const answer = await ask<BackfillResponse>(`${path}/backfill`, { method: "POST", body: { from: iso(from), to: iso(to) } });
        setMade(answer.ticks.length);
        done();
      },
    });
  };
  return (
    <details class="card">
      <summary>Backfill</summary>
      <form class="fields" onSubmit={ask_first}>
        <label>From<input type="datetime-local" required value={from} onInput={(event) => setFrom(event.currentTarget.value)} /></label>
        <label>To<input type="datetime-local" required value={to} onInput={(event) => setTo(event.currentTarget.value)} /></label>
        <button type="submit">Run past ticks…</button>
      </form>
      {made === null ? null : <p role="status">{count(made)} {made === 1 ? "tick" : "ticks"} got a job.</p>}
    </details>
  );
}
