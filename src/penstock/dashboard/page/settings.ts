/** What one person prefers, kept in this browser. Nothing of the system is kept here. */

import { effect, signal } from "@preact/signals";

type Choices = { theme: "auto" | "light" | "dark"; density: "comfortable" | "compact"; times: Times; keys: "on" | "off" };
export type Times = "relative" | "local" | "utc";

const KEY = "penstock-page";

function stored(): Partial<Choices> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Choices>;
  } catch {
    return {};
  }
}

const before = stored();
const pick = <T extends string>(known: readonly T[], value: T | undefined): T =>
  value !== undefined && known.includes(value) ? value : known[0]!;

export const theme = signal(pick(["auto", "light", "dark"] as const, before.theme));
export const density = signal(pick(["comfortable", "compact"] as const, before.density));
export const times = signal(pick(["relative", "local", "utc"] as const, before.times));
export const singleKeys = signal(pick(["on", "off"] as const, before.keys));

export function cycle<T extends string>(one: { value: T }, known: readonly T[]): T {
  return (one.value = known[(known.indexOf(one.value) + 1) % known.length]!);
}

effect(() => {
  const choices: Choices = { theme: theme.value, density: density.value, times: times.value, keys: singleKeys.value };
  document.documentElement.dataset.theme = choices.theme;
  document.documentElement.dataset.density = choices.density;
  try {
    localStorage.setItem(KEY, JSON.stringify(choices));
  } catch {
    // A browser that keeps nothing still shows everything.
  }
});
