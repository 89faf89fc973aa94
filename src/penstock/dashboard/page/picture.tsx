/**
 * The picture: waiting jobs above the line, workers below it, and on the line what the autoscaler decided.
 *
 * Drawn as SVG: its colours are those of the style sheet, and what is not known can be hatched. Steps only, since a
 * number holds until the next one is known; a gap stays a gap.
 */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { HistoryStep } from "./schema";
import { times } from "./settings";
import { count, instant, Link, span, Text } from "./text";
import type { Band, Decision } from "./workers_past";

const LEFT = 44;
const RIGHT = 12;
const TOP = 8;
const GATE = 30;
const AXIS = 22;
const BUTTON = 24;

export type PictureProps = {
  steps: HistoryStep[];
  from: number;
  to: number;
  step: number;
  bands: Band[];
  decisions: Decision[];
  bound: number | null;
  selected: string | null;
  select: (at: string | null) => void;
};

/** A number that is round and not below the highest. */
function roundUp(value: number): number {
  if (value <= 4) return Math.max(1, Math.ceil(value));
  const size = 10 ** Math.floor(Math.log10(value));
  return size * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((factor) => factor * size >= value)!;
}

const AXIS_STEPS = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800];

/** Round times between two instants, no closer than 90 pixels. */
function axisTimes(from: number, to: number, width: number): number[] {
  const wide = ((to - from) / 1000) * (90 / Math.max(width, 1));
  const step = (AXIS_STEPS.find((one) => one >= wide) ?? 604_800) * 1000;
  const offset = times.value === "utc" ? 0 : new Date(to).getTimezoneOffset() * 60_000;
  const found: number[] = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) found.push(at);
  return found;
}

const clock = (at: number): string => instant(new Date(at), times.value === "utc" ? "utc" : "local", false);

/** A time on the axis: as short as the span allows. */
function axisLabel(at: number, whole: number): string {
  const full = instant(new Date(at), times.value === "utc" ? "utc" : "local");
  if (whole > 3 * 86_400_000) return full.slice(5, 10);
  return whole > 20 * 60_000 ? full.slice(11, 16) : full.slice(11, 19);
}

type Group = { x: number; decisions: Decision[] };

/** Decisions along the line; those that would lie on one another are one button. */
function grouped(decisions: Decision[], place: (at: number) => number, most: number): Group[] {
  const groups: Group[] = [];
  for (const one of [...decisions].sort((a, b) => Date.parse(a.at) - Date.parse(b.at))) {
    const x = Math.min(Math.max(place(Date.parse(one.at)), LEFT + BUTTON / 2), most - BUTTON / 2);
    const last = groups.at(-1);
    if (last && x - last.x < BUTTON + 2) last.decisions.push(one);
    else groups.push({ x, decisions: [one] });
  }
  return groups;
}

function signOf(group: Group): string {
  const started = group.decisions.some((one) => one.start);
  const stopped = group.decisions.some((one) => one.stop);
  return started && stopped ? "◆" : started ? "▲" : "▼";
}

function summaryOf(decisions: Decision[]): string {
  const started = decisions.reduce((sum, one) => sum + (one.start ?? 0), 0);
  const stopped = decisions.reduce((sum, one) => sum + (one.stop ?? 0), 0);
  const parts = [started ? `${started} started` : "", stopped ? `${stopped} let go` : ""].filter(Boolean);
  return parts.join(", ") || "nothing changed";
}

function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watch.observe(place.current!);
    return () => watch.disconnect();
  }, []);
  return [place, width];
}

export default function Picture(props: PictureProps): JSX.Element {
  const { steps, from, to, bands, decisions } = props;
  const [place, width] = useWidth();
  const [cursor, setCursor] = useState<number | null>(null);
  const above = width < 560 ? 120 : 170;
  // Without fleets nothing is known of workers: then nothing is said of them.
  const hasWorkers = bands.length > 0;
  const below = hasWorkers ? (width < 560 ? 72 : 96) : 0;
  const line = hasWorkers ? GATE : 1;
  const gate = TOP + above;
  const height = gate + line + below + AXIS;
  const right = Math.max(width - RIGHT, LEFT + 10);
  const x = (at: number) => LEFT + ((at - from) / (to - from)) * (right - LEFT);
  const most = roundUp(Math.max(4, ...steps.map((one) => one.waiting)));
  const mostWorkers = roundUp(Math.max(2, ...bands.map((one) => Math.max(one.wanted ?? 0, one.busy + one.idle + one.starting))));
  const up = (value: number) => gate - (value / most) * above;
  const down = (value: number) => gate + line + (Math.min(value, mostWorkers) / mostWorkers) * below;
  const groups = useMemo(() => grouped(decisions, x, right), [decisions, from, to, right]);
  const waiting = useMemo(() => {
    let path = "";
    for (const one of steps) {
      const start = Math.max(x(Date.parse(one.at)), LEFT);
      path += `${path ? "" : `M${start} ${gate}`}V${up(one.waiting)}H${Math.min(x(Date.parse(one.at) + props.step), right)}`;
    }
    return path && `${path}V${gate}`;
  }, [steps, width, most, from]);
  const at = cursor === null ? null : steps[cursor];
  const pick = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const time = from + ((event.clientX - box.left - LEFT) / (right - LEFT)) * (to - from);
    const found = steps.findLastIndex((one) => Date.parse(one.at) <= time);
    setCursor(found < 0 ? null : found);
  };
  const selected = groups.find((group) => group.decisions.some((one) => one.at === props.selected));
  return (
    <figure class="picture">
      <figcaption class="legend">
        <span><i class="key waiting" />waiting</span>
        {hasWorkers ? (
          <>
            <span><i class="key busy" />busy</span>
            <span><i class="key idle" />idle</span>
            <span><i class="key starting" />starting</span>
            <span><i class="key unknown" />not recorded</span>
            <span><i class="key wanted" />wanted</span>
            <span>▲ started</span><span>▼ let go</span><span>◆ both</span>
          </>
        ) : null}
      </figcaption>
      <div ref={place} class="canvas" onPointerMove={pick} onPointerLeave={() => setCursor(null)}>
        {width > 0 ? (
          <svg width={width} height={height} aria-hidden="true">
            <defs>
              <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                <rect width="2" height="6" class="hatch" />
              </pattern>
            </defs>
            {[most, most / 2].filter((one) => Number.isInteger(one)).map((one) => (
              <g key={one}>
                <path class="grid" d={`M${LEFT} ${up(one)}H${right}`} />
                <text x={LEFT - 6} y={up(one) + 4} class="label end">{count(one)}</text>
              </g>
            ))}
            {(hasWorkers ? [mostWorkers, mostWorkers / 2] : []).filter((one) => Number.isInteger(one)).map((one) => (
              <g key={one}>
                <path class="grid" d={`M${LEFT} ${down(one)}H${right}`} />
                <text x={LEFT - 6} y={down(one) + 4} class="label end">{count(one)}</text>
              </g>
            ))}
            {axisTimes(from, to, right - LEFT).map((one) => (
              <g key={one}>
                <path class="grid" d={`M${x(one)} ${TOP}V${gate}M${x(one)} ${gate + line}V${gate + line + below}`} />
                {x(one) < right - 18 && x(one) > LEFT + 18 ? (
                  <text x={x(one)} y={height - 6} class="label middle">{axisLabel(one, to - from)}</text>
                ) : null}
              </g>
            ))}
            <path class="area waiting" d={waiting} />
            <rect class="gate" x={LEFT} y={gate} width={right - LEFT} height={line} />
            {bands.map((band) => <Workers key={band.from} band={band} x={x} down={down} />)}
            <path class="wanted" d={wantedPath(bands, x, down)} />
            {props.bound !== null && props.bound <= mostWorkers ? (
              <path class="bound" d={`M${LEFT} ${down(props.bound)}H${right}`} />
            ) : null}
            {at ? <path class="cursor" d={`M${x(Date.parse(at.at) + props.step)} ${TOP}V${gate + line + below}`} /> : null}
          </svg>
        ) : null}
        <div class="gate-buttons">
          {groups.map((group) => (
            <button
              key={group.decisions[0]!.at}
              type="button"
              class={group === selected ? "decision on" : "decision"}
              aria-pressed={group === selected}
              aria-label={`${clock(Date.parse(group.decisions[0]!.at))}: ${summaryOf(group.decisions)}`}
              title={summaryOf(group.decisions)}
              style={{ left: `${group.x - BUTTON / 2}px`, top: `${gate + (GATE - BUTTON) / 2}px` }}
              onClick={() => props.select(group === selected ? null : group.decisions.at(-1)!.at)}
            >
              {signOf(group)}
            </button>
          ))}
        </div>
        <input
          type="range"
          class="walk"
          min={0}
          max={Math.max(0, steps.length - 1)}
          value={cursor ?? steps.length - 1}
          aria-label="Walk through time"
          aria-valuetext={readout(steps[cursor ?? steps.length - 1], bands, props.step)}
          onInput={(event) => setCursor(Number(event.currentTarget.value))}
        />
      </div>
      <p class="readout">{readout(at ?? steps.at(-1), bands, props.step)}</p>
      {selected ? <Decisions of={selected.decisions} /> : null}
      <p class="small muted">{inWords(steps, bands)}</p>
      <AsTable steps={steps} bands={bands} step={props.step} />
    </figure>
  );
}

function Workers({ band, x, down }: { band: Band; x: (at: number) => number; down: (value: number) => number }) {
  const left = x(band.from);
  const width = Math.max(x(band.to) - left, 0.5);
  const box = (kind: string, low: number, high: number) =>
    high > low ? <rect class={`area ${kind}`} x={left} y={down(low)} width={width} height={down(high) - down(low)} /> : null;
  if (!band.known) return band.wanted === null ? box("unknown", 0, 1e9) : box("unknown", 0, band.wanted);
  return (
    <g>
      {box("busy", 0, band.busy)}
      {box("idle", band.busy, band.busy + band.idle)}
      {box("starting", band.busy + band.idle, band.busy + band.idle + band.starting)}
    </g>
  );
}

function wantedPath(bands: Band[], x: (at: number) => number, down: (value: number) => number): string {
  let path = "";
  let open = false;
  for (const band of bands) {
    if (band.wanted === null) {
      open = false;
      continue;
    }
    path += open ? `V${down(band.wanted)}` : `M${x(band.from)} ${down(band.wanted)}`;
    path += `H${x(band.to)}`;
    open = true;
  }
  return path;
}

const bandAt = (bands: Band[], at: number): Band | undefined => bands.find((band) => band.from < at && at <= band.to) ?? bands.at(-1);

/** What there was at the end of one step, in words. */
function readout(step: HistoryStep | undefined, bands: Band[], length: number): string {
  if (!step) return "";
  const end = Date.parse(step.at) + length;
  const band = bandAt(bands, end);
  const parts = [
    `${clock(Math.min(end, Date.now()))}`,
    `${count(step.waiting)} waiting`,
    `${count(step.running)} running`,
    `${count(step.arrived)} came`,
    `${count(step.succeeded)} succeeded`,
  ];
  if (step.failed) parts.push(`${count(step.failed)} failed`);
  if (step.wait) parts.push(`half waited under ${span(step.wait.p50)}, 95 % under ${span(step.wait.p95)}`);
  if (band?.known) parts.push(`workers: ${band.busy} busy, ${band.idle} idle, ${band.starting} starting`);
  else if (band && band.wanted !== null) parts.push(`${band.wanted} workers wanted`);
  return parts.join(" · ");
}

/** The picture for those who do not see it. */
function inWords(steps: HistoryStep[], bands: Band[]): string {
  const highest = steps.reduce<HistoryStep | null>((best, one) => (one.waiting > (best?.waiting ?? 0) ? one : best), null);
  const failed = steps.reduce((sum, one) => sum + one.failed, 0);
  const came = steps.reduce((sum, one) => sum + one.arrived, 0);
  const wanted = bands.reduce((sum, one) => Math.max(sum, one.wanted ?? 0), 0);
  const parts = [
    highest ? `Most waiting: ${count(highest.waiting)} at ${clock(Date.parse(highest.at))}.` : "Nothing waited.",
    `${count(came)} jobs came, ${count(failed)} failed.`,
    !bands.length ? "" : wanted ? `At most ${count(wanted)} workers were wanted.` : "No workers were wanted.",
  ];
  return parts.join(" ");
}

const READING: [keyof Decision["reading"], string][] = [
  ["backlog", "waiting"], ["running", "running"], ["due_soon", "due soon"], ["busy", "busy"], ["idle", "idle"],
  ["starting", "starting"], ["draining", "draining"], ["capacity", "jobs a worker runs at once"],
];
const SECONDS: [keyof Decision["reading"], string][] = [
  ["oldest_wait_seconds", "oldest waited"], ["service_seconds", "a job takes"], ["startup_seconds", "a worker starts in"],
];

const LABELS = new Map<string, string>([...READING, ...SECONDS, ["arrival_rate", "jobs that came a second"]]);

export function Decisions({ of }: { of: Decision[] }): JSX.Element {
  return (
    <ol class="decisions">
      {[...of].reverse().map((one) => (
        <li key={one.fleet + one.at}>
          <div>
            <span class="num">{clock(Date.parse(one.at))}</span> {one.start ? `▲ ${one.start}` : one.stop ? `▼ ${one.stop}` : "="}{" "}
            <strong><Text of={one.reason} /></strong>
          </div>
          <div class="small muted">
            <Link to={["fleets", one.fleet]} terms={{ at: one.at }}><Text of={one.fleet} /></Link>
            {" aims at "}{one.desired}. Seen: {[
              ...READING.filter(([name]) => one.reading[name] != null).map(([name, label]) => `${label} ${one.reading[name] as number}`),
              ...SECONDS.filter(([name]) => one.reading[name] != null).map(([name, label]) => `${label} ${span(one.reading[name] as number)}`),
              ...(one.reading.arrival_rate != null ? [`${one.reading.arrival_rate.toFixed(1)} came a second`] : []),
            ].join(" · ")}
            {Object.entries(one.reading.unknown ?? {}).map(([name, why]) => (
              <span key={name}> · {LABELS.get(name) ?? name}: not known (<Text of={why} />)</span>
            ))}
          </div>
        </li>
      ))}
    </ol>
  );
}

function AsTable({ steps, bands, step }: { steps: HistoryStep[]; bands: Band[]; step: number }): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <details class="as-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Show as table</summary>
      {open ? (
        <div class="scroll" tabIndex={0} role="region" aria-label="The picture as a table">
          <table class="plain">
            <thead>
              <tr>
                {["until", "waiting", "running", "came", "started", "succeeded", "failed", ...(bands.length ? ["wanted"] : [])].map((name) => (
                  <th key={name} scope="col" class={name === "until" ? undefined : "num"}>{name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {steps.toReversed().map((one) => (
                <tr key={one.at}>
                  <th scope="row">{instant(new Date(Date.parse(one.at) + step), times.value)}</th>
                  {[one.waiting, one.running, one.arrived, one.started, one.succeeded, one.failed].map((value, number) => (
                    <td key={number} class="num">{count(value)}</td>
                  ))}
                  {bands.length ? <td class="num">{bandAt(bands, Date.parse(one.at) + step)?.wanted ?? "not recorded"}</td> : null}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </details>
  );
}
