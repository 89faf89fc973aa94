/** Schedules: what comes by itself, and when. */

import type { JSX } from "preact";
import { Command, confirm, quoted } from "../dialogs";
import { Empty, Show, useLoad } from "../load";
import { addressOf, addressWith, go, query } from "../route";
import type { SchedulePage } from "../schema";
import { ask, may, type Job, type Schedule } from "../server";
import { NameLink, span, Text, Time } from "../text";

/** When a schedule ticks, in words. */
export const whenWords = (one: Schedule): string =>
  one.cron !== null ? one.cron : one.interval !== null ? `every ${span(one.interval)}${one.after_completion ? " after its job has ended" : ""}` : "never";

type Listed = Omit<SchedulePage, "schedules"> & { schedules: Schedule[] };

export function ScheduleActs({ one, done }: { one: Schedule; done: () => void }): JSX.Element | null {
  if (!may("schedules")) return null;
  const path = `v1/schedules/${encodeURIComponent(one.name)}`;
  const pause = one.paused ? "resume" : "pause";
  return (
    <>
      <button type="button" class="small" onClick={() => confirm({
        title: "Run its job now?",
        about: <p>A job of <Text of={one.type} /> is made now, besides the ticks of <Text of={one.name} />.</p>,
        command: `penstock schedules trigger ${quoted(one.name)}`,
        verb: "Run it",
        act: async () => {
          const made = await ask<Job>(`${path}/trigger`, { method: "POST" });
          go(addressOf(["jobs", made.id]));
        },
        done: "Its job was made",
      })}>Trigger…<span class="hidden"> {one.name}</span></button>
      <button type="button" class="small" onClick={() => confirm({
        title: one.paused ? "Resume this schedule?" : "Pause this schedule?",
        about: one.paused ? <p>Its misfire policy, {one.misfire}, decides about the ticks that came meanwhile.</p> : <p>No tick of <Text of={one.name} /> becomes a job until it is resumed.</p>,
        command: `penstock schedules ${pause} ${quoted(one.name)}`,
        verb: one.paused ? "Resume" : "Pause",
        act: () => ask(`${path}/${pause}`, { method: "POST" }).then(done),
        done: `${one.name} ${one.paused ? "resumed" : "paused"}`,
      })}>{one.paused ? "Resume…" : "Pause…"}<span class="hidden"> {one.name}</span></button>
    </>
  );
}

export default function Schedules(): JSX.Element {
  const cursor = query.value.get("cursor");
  const loaded = useLoad<Listed>(`v1/schedules?${new URLSearchParams({ limit: "100", ...(cursor ? { cursor } : {}) })}`, 5000);
  return (
    <>
      <h1 tabIndex={-1}>Schedules</h1>
      <Show of={loaded}>
        {(read) => read.schedules.length ? (
          <>
            <table class="card">
              <thead><tr><th scope="col">Schedule</th><th scope="col">Type</th><th scope="col">When</th><th scope="col">Zone</th><th scope="col">Last tick</th><th scope="col">Next tick</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
              <tbody>
                {read.schedules.map((one) => (
                  <tr key={one.name} data-row>
                    <th scope="row"><NameLink kind="schedules" name={one.name} /> {one.paused ? <span class="tag paused">paused</span> : null}</th>
                    <td data-label="Type"><NameLink kind="types" name={one.type} /></td>
                    <td data-label="When" class={one.cron ? "mono" : ""}><Text of={whenWords(one)} /></td>
                    <td data-label="Zone">{one.timezone ? <Text of={one.timezone} /> : <span class="muted">–</span>}</td>
                    <td data-label="Last tick"><Time at={one.last_tick_at} /></td>
                    <td data-label="Next tick">{one.paused ? <span class="muted">paused</span> : <Time at={one.next_tick_at} />}</td>
                    <td class="acts"><ScheduleActs one={one} done={loaded.reload} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
            {read.cursor ? <nav class="pages" aria-label="Pages of schedules"><a href={addressWith({ cursor: read.cursor })}>More</a></nav> : null}
          </>
        ) : <Empty><p>No schedule yet. To make one:</p><Command text={'penstock schedules create nightly report --cron "0 2 * * *" --timezone Europe/Berlin'} /></Empty>}
      </Show>
    </>
  );
}
