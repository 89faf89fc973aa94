/** Text, names, times and states as they are shown. Whatever a user could have written goes through `Text`. */

import type { ComponentChildren, JSX } from "preact";
import { now, skew } from "./live";
import { addressOf, type Terms } from "./route";
import type { State } from "./schema";
import { times, type Times } from "./settings";

/** Characters that could hide or turn around what stands beside them. Line breaks and tabs are layout. */
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;
const ODD_ALL = new RegExp(ODD, "g");

const codeOf = (sign: string): string => `U+${sign.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;

/** Text as it is, with odd characters as marks. */
export function Text({ of }: { of: string }): JSX.Element {
  if (!ODD.test(of)) return <bdi>{of}</bdi>;
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const found of of.matchAll(ODD_ALL)) {
    parts.push(of.slice(end, found.index), <span class="odd">{codeOf(found[0])}</span>);
    end = found.index + found[0].length;
  }
  parts.push(of.slice(end));
  return <bdi>{parts}</bdi>;
}

const SHORT = 120;

/** The beginning of a text, in one line; the whole of it as a title. */
export function Brief({ of, most = SHORT }: { of: string; most?: number }): JSX.Element {
  const cut = of.length > most ? `${of.slice(0, most)}…` : of;
  return (
    <span class="brief" title={cut === of ? undefined : of.slice(0, 2000)}>
      <Text of={cut.replace(/\s+/g, " ")} />
    </span>
  );
}

export function Link(props: { to: string[]; terms?: Terms; class?: string; label?: string; children: ComponentChildren }) {
  return (
    <a href={addressOf(props.to, props.terms)} class={props.class} aria-label={props.label}>
      {props.children}
    </a>
  );
}

/** A name that links to the view of the thing. */
export function NameLink({ kind, name }: { kind: string; name: string }): JSX.Element {
  return (
    <Link to={[kind, name]} class="name">
      <Text of={name} />
    </Link>
  );
}

export const shortId = (id: string): string => (id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);

export function JobLink({ id }: { id: string }): JSX.Element {
  return (
    <a href={addressOf(["jobs", id])} class="mono id" title={id}>
      {shortId(id)}
    </a>
  );
}

// -- numbers and times

const figures = new Intl.NumberFormat("en");
export const count = (value: number): string => figures.format(value);
export const bytes = (size: number): string => {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
};

/** A duration in two figures: `1.4 s`, `3 min 20 s`, `2 d 4 h`. */
export function span(seconds: number): string {
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const units: [number, string][] = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => whole >= size);
  const [size, name] = units[first]!;
  const [less, lesser] = units[first + 1]!;
  const rest = Math.floor((whole % size) / less);
  return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${lesser}` : ""}`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** An instant, in this browser's zone or in UTC. */
export function instant(at: Date, how: Times, withDate = true): string {
  const utc = how === "utc";
  const day = utc
    ? `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`
    : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const time = utc
    ? `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`
    : `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${withDate ? `${day} ` : ""}${time}${utc && withDate ? " UTC" : ""}`;
}

/** The server's present. */
export const present = (): number => now.value + skew.value;

export function relative(at: number): string {
  const seconds = (at - present()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds < 0 ? `${span(-seconds)} ago` : `in ${span(seconds)}`;
}

/** A time as the reader prefers it; the other ways as its title. */
export function Time({ at, full = false }: { at: string | null | undefined; full?: boolean }): JSX.Element {
  if (!at) return <span class="muted">–</span>;
  const date = new Date(at);
  const how = times.value;
  const absolute = instant(date, how === "utc" ? "utc" : "local");
  const text = how === "relative" ? relative(date.getTime()) : absolute;
  return (
    <time dateTime={at} title={`${instant(date, "local")} here, ${instant(date, "utc")}`}>
      {full && how === "relative" ? `${absolute} (${text})` : text}
    </time>
  );
}

export function Span({ from, to }: { from: string | null; to: string | null }): JSX.Element {
  if (!from) return <span class="muted">–</span>;
  const end = to ? Date.parse(to) : present();
  return <span class={to ? "num" : "num going"}>{span(Math.max(0, (end - Date.parse(from)) / 1000))}</span>;
}

// -- states: a shape for each, never colour alone

const SHAPES: Record<string, JSX.Element> = {
  scheduled: (<><circle cx="8" cy="8" r="6" /><path d="M8 4.5V8l2.5 1.7" /></>),
  queued: <path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />,
  running: <path d="M14 8a6 6 0 1 1-6-6" class="turns" />,
  succeeded: <path d="m2.5 8.5 3.7 3.7 7.3-8" />,
  failed: <path d="m3.5 3.5 9 9m0-9-9 9" />,
  cancelled: (<><circle cx="8" cy="8" r="6" /><path d="m4 12 8-8" /></>),
  expired: <path d="M4 2.5h8M4 13.5h8M5 2.5c0 4 6 7 6 11M11 2.5c0 4-6 7-6 11" />,
};

export const STATES: readonly State[] = ["scheduled", "queued", "running", "succeeded", "failed", "cancelled", "expired"];

export function Shape({ of }: { of: string }): JSX.Element {
  return (
    <svg class={`shape state-${of}`} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[of]}
    </svg>
  );
}

export function StateMark({ of }: { of: State }): JSX.Element {
  return (
    <span class={`mark state-${of}`}>
      <Shape of={of} />
      {of}
    </span>
  );
}
