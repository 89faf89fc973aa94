/** Keys. Single ones never act while somebody types, and can be switched off. */

import { signal } from "@preact/signals";
import { copy, question, say } from "./dialogs";
import { stepSpan } from "./history";
import { setWanted, wanted } from "./live";
import { addressOf, go } from "./route";
import { cycle, density, singleKeys, theme, times } from "./settings";

export type Panel = "palette" | "help" | null;
export const panel = signal<Panel>(null);
/** What else the view at hand does with a key: rows to walk through, jobs to act on. */
export const viewKeys = signal<Record<string, () => void>>({});

const PLACES: Record<string, string[]> = {
  o: [], j: ["jobs"], q: ["queues"], t: ["types"], s: ["schedules"], f: ["fleets"], w: ["workers"], h: ["shards"], n: ["new"], e: ["subscriptions"],
};

export const HELP: [string, string][] = [
  ["Ctrl K", "go anywhere: a page, a queue, a type, a job's id"],
  ["/", "filter"],
  ["g then o j q t s f w h e", "overview, jobs, queues, types, schedules, fleets, workers, shards, subscriptions"],
  ["n", "new job"],
  ["j k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row; a selects all"],
  ["r c", "retry, cancel what is selected (asks first)"],
  ["[ ]", "shorter, longer span of time"],
  ["p", "follow live, or stop"],
  ["u", "times: relative, local, UTC"],
  ["t", "theme: as the system, light, dark"],
  ["d", "rows: comfortable, compact"],
  ["y", "copy a link to this view"],
  ["?", "this list"],
];

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) &&
  !(target instanceof HTMLInputElement && /^(checkbox|range|radio)$/.test(target.type));

function walk(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main tr[data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by, 0), rows.length - 1)]!;
  (next.querySelector<HTMLElement>("a.row, th a, td a") ?? next).focus();
}

const KEYS: Record<string, () => void> = {
  "/": () => (document.querySelector<HTMLElement>("[data-filter]") ? focusFilter() : (panel.value = "palette")),
  "?": () => (panel.value = "help"),
  n: () => go(addressOf(["new"])),
  j: () => walk(1),
  k: () => walk(-1),
  p: () => {
    setWanted(!wanted.value);
    say(wanted.value ? "Follows live" : "Stopped following");
  },
  u: () => say(`Times: ${cycle(times, ["relative", "local", "utc"])}`),
  t: () => say(`Theme: ${cycle(theme, ["auto", "light", "dark"])}`),
  d: () => say(`Rows: ${cycle(density, ["comfortable", "compact"])}`),
  y: () => void copy(location.href, "Link copied"),
  "[": () => stepSpan(-1),
  "]": () => stepSpan(1),
};

function focusFilter(): void {
  const field = document.querySelector<HTMLInputElement>("[data-filter]")!;
  field.focus();
  field.select();
}

let going = 0;

export function listen(): void {
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      panel.value = panel.value === "palette" ? null : "palette";
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || singleKeys.value === "off") return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") (event.target as HTMLElement).blur();
      return;
    }
    if (panel.value || question.value || document.querySelector("dialog[open]")) return;
    const wasGoing = Date.now() - going < 1500;
    going = 0;
    if (wasGoing && event.key in PLACES) {
      event.preventDefault();
      return go(addressOf(PLACES[event.key]!));
    }
    if (event.key === "g") going = Date.now();
    const act = viewKeys.value[event.key] ?? KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
