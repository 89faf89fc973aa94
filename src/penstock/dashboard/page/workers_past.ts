/** How many workers there were and how many were wanted, from what the fleets' decisions tell and what this page saw. */

import { effect } from "@preact/signals";
import { digest } from "./live";
import type { FleetDecision } from "./schema";

/** Workers over a span of time. `known` false: nobody recorded how many there were, only how many were wanted. */
export type Band = {
  from: number;
  to: number;
  busy: number;
  idle: number;
  starting: number;
  wanted: number | null;
  known: boolean;
};

export type Decision = FleetDecision & { fleet: string };

type Sample = { at: number; busy: number; idle: number; starting: number; wanted: number | null };

const KEPT_SAMPLES = 3_600;
/** Decisions that the server keeps of a fleet; with fewer, the first of them is the first there was. */
const KEPT_DECISIONS = 50;

const samples = new Map<string, Sample[]>();

effect(() => {
  const read = digest.value;
  if (!read) return;
  for (const fleet of read.fleets) {
    const seen = samples.get(fleet.name) ?? [];
    samples.set(fleet.name, seen);
    const { busy = 0, idle = 0, starting = 0 } = fleet.workers;
    const last = seen.at(-1);
    const one = { at: Date.parse(read.at), busy, idle, starting, wanted: fleet.desired };
    const same = last && last.busy === busy && last.idle === idle && last.starting === starting;
    if (!same || last.wanted !== one.wanted) seen.push(one);
    if (seen.length > KEPT_SAMPLES) seen.splice(0, seen.length - KEPT_SAMPLES);
  }
});

/** The workers of one fleet between two instants, oldest first. */
function bandsOf(fleet: string, decisions: Decision[], from: number, to: number): Band[] {
  const told = decisions.filter((one) => one.fleet === fleet).sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const seen = samples.get(fleet) ?? [];
  const bands: Band[] = [];
  const add = (start: number, end: number, rest: Omit<Band, "from" | "to">) => {
    if (Math.max(start, from) < Math.min(end, to)) bands.push({ from: Math.max(start, from), to: Math.min(end, to), ...rest });
  };
  const watched = seen[0]?.at ?? to;
  const nothing = { busy: 0, idle: 0, starting: 0, known: false };
  const first = told[0];
  if (!first || told.length < KEPT_DECISIONS) {
    const { busy = 0, idle = 0, starting = 0 } = first?.reading ?? {};
    add(from, first ? Math.min(Date.parse(first.at), watched) : watched, { ...nothing, wanted: (busy ?? 0) + (idle ?? 0) + (starting ?? 0) });
  } else add(from, Math.min(Date.parse(first.at), watched), { ...nothing, wanted: null });
  told.forEach((one, number) => {
    const next = told[number + 1];
    add(Date.parse(one.at), Math.min(next ? Date.parse(next.at) : to, watched), { ...nothing, wanted: one.desired });
  });
  seen.forEach((one, number) => add(one.at, seen[number + 1]?.at ?? to, { ...one, known: true }));
  return bands;
}

/** The workers of several fleets together: a number is known only where all of them are. */
export function workersOver(fleets: string[], decisions: Decision[], from: number, to: number): Band[] {
  const each = fleets.map((fleet) => bandsOf(fleet, decisions, from, to));
  if (each.length === 1) return each[0]!;
  const marks = [...new Set(each.flat().flatMap((band) => [band.from, band.to]))].sort((a, b) => a - b);
  const places = each.map(() => 0);
  return marks.slice(0, -1).map((start, number) => {
    const band: Band = { from: start, to: marks[number + 1]!, busy: 0, idle: 0, starting: 0, wanted: 0, known: true };
    each.forEach((bands, index) => {
      while (places[index]! < bands.length && bands[places[index]!]!.to <= start) places[index]!++;
      const one = bands[places[index]!];
      if (!one || one.from > start) {
        band.known = false;
        band.wanted = null;
        return;
      }
      band.busy += one.busy;
      band.idle += one.idle;
      band.starting += one.starting;
      band.known &&= one.known;
      band.wanted = band.wanted === null || one.wanted === null ? null : band.wanted + one.wanted;
    });
    return band;
  });
}
