/** A view's part that loads the past and draws the picture of it. */

import type { FunctionComponent, JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { digest, now } from "./live";
import { Missing, Notice, Show, useLoad } from "./load";
import type { PictureProps } from "./picture";
import { addressWith, go, query } from "./route";
import type { FleetItem, HistoryReport, HistoryStep } from "./schema";
import { ask, Refused } from "./server";
import { present } from "./text";
import { workersOver, type Decision } from "./workers_past";

const SPANS = { "5m": [300, 10], "15m": [900, 10], "1h": [3_600, 10], "6h": [21_600, 60], "24h": [86_400, 300], "7d": [604_800, 3_600], "30d": [2_592_000, 10_800] } as const;
const LABELS: Record<SpanName, string> = { "5m": "5 min", "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d" };
export type SpanName = keyof typeof SPANS;

export const chosenSpan = (): SpanName => {
  const said = query.value.get("last") ?? "";
  return said in SPANS ? (said as SpanName) : "1h";
};

export function stepSpan(by: number): void {
  const names = Object.keys(SPANS) as SpanName[];
  const next = names[names.indexOf(chosenSpan()) + by];
  if (next) go(addressWith({ last: next === "1h" ? null : next }), true);
}

/** The decisions of fleets, read again when one of them aims at another number. */
export function useDecisions(fleets: string[]): Decision[] {
  const [found, setFound] = useState<Decision[]>([]);
  const aims = (digest.value?.fleets ?? []).map((one) => `${one.name}:${one.desired}`).join(" ");
  const names = fleets.join("\n");
  useEffect(() => {
    let left = false;
    const read = fleets.slice(0, 12).map((name) =>
      ask<FleetItem>(`v1/fleets/${encodeURIComponent(name)}`).then((item) =>
        (item.decisions ?? []).map((one) => ({ ...one, fleet: name })),
      ),
    );
    Promise.all(read).then(
      (each) => left || setFound(each.flat()),
      (error) => {
        if (!(error instanceof Refused)) throw error;
      },
    );
    return () => void (left = true);
  }, [names, aims]);
  return found;
}

/** The newest steps that the live digest has, in place of those that were read earlier. */
function merged(steps: HistoryStep[], length: number): HistoryStep[] {
  const recent = digest.value?.recent;
  if (!recent?.length || length !== 10_000 || !steps.length) return steps;
  const first = recent[0]!.at;
  if (Date.parse(first) > Date.parse(steps.at(-1)!.at) + length) return steps;
  return [...steps.filter((one) => one.at < first), ...recent];
}

export type HistoryProps = { queue?: string; type?: string; fleets: string[]; bound?: number | null; title: string };

/** The picture is a file of its own: what needs none does not load it. */
function usePicture(): FunctionComponent<PictureProps> | null {
  const [picture, setPicture] = useState<{ draw: FunctionComponent<PictureProps> } | null>(null);
  useEffect(() => void import("./picture").then((file) => setPicture({ draw: file.default })), []);
  return picture?.draw ?? null;
}

export function History(props: HistoryProps): JSX.Element {
  const name = chosenSpan();
  const [seconds, step] = SPANS[name];
  const Picture = usePicture();
  const make = () => {
    const terms = new URLSearchParams({ from: new Date(present() - seconds * 1000).toISOString(), step: String(step) });
    if (props.queue) terms.set("queue", props.queue);
    if (props.type) terms.set("type", props.type);
    return `v1/history?${terms}`;
  };
  const loaded = useLoad<HistoryReport>(`${name} ${props.queue ?? ""} ${props.type ?? ""}`, step > 10 ? 60_000 : 10_000, make);
  const decisions = useDecisions(props.fleets);
  const selected = query.value.get("at");
  return (
    <section class="card history" aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        <nav class="spans" aria-label="Span of time">
          {(Object.keys(SPANS) as SpanName[]).map((one) => (
            <a key={one} href={addressWith({ last: one === "1h" ? null : one })} aria-current={one === name ? "true" : undefined}>
              {LABELS[one]}
            </a>
          ))}
        </nav>
      </header>
      {loaded.error?.code === "events_not_kept" ? (
        <Notice>No history is kept here: set <code>events.keep = true</code> to have it.</Notice>
      ) : (
        <Show of={loaded} lines={9}>
          {(report) => (
            <>
              <Missing shards={report.missing_shards} />
              {Picture ? <Drawn report={report} props={props} decisions={decisions} selected={selected} Picture={Picture} /> : null}
            </>
          )}
        </Show>
      )}
    </section>
  );
}

function Drawn({ report, props, decisions, selected, Picture }: {
  report: HistoryReport;
  props: HistoryProps;
  decisions: Decision[];
  selected: string | null;
  Picture: FunctionComponent<PictureProps>;
}): JSX.Element {
  const length = report.step_seconds * 1000;
  const everything = !props.queue && !props.type;
  const steps = useMemo(
    () => (everything ? merged(report.steps, length) : report.steps),
    [report, everything ? digest.value?.recent : null],
  );
  const from = Date.parse(report.from);
  const to = Math.max(Date.parse(report.to), Date.parse(steps.at(-1)?.at ?? report.to) + length);
  const until = Math.min(to, present());
  const bands = useMemo(() => workersOver(props.fleets, decisions, from, until), [decisions, from, digest.value, now.value]);
  const within = useMemo(() => decisions.filter((one) => Date.parse(one.at) >= from), [decisions, from]);
  return (
    <Picture
      steps={steps}
      from={from}
      to={to}
      step={length}
      bands={bands}
      decisions={within}
      bound={props.bound ?? null}
      selected={selected}
      select={(at) => go(addressWith({ at }), true)}
    />
  );
}
