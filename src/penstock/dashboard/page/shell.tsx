/** What surrounds every view: navigation, search, the live mark, signing in. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Asking, attempt, Dialog, said } from "./dialogs";
import { HELP, panel } from "./keyboard";
import { digest, liveState, setWanted, staleSeconds, start, wanted } from "./live";
import { addressOf, go, segments } from "./route";
import type { SchedulePage, TypeList } from "./schema";
import { ask, may, mustSignIn, readSession, Refused, session, signIn, signOut } from "./server";
import { cycle, density, singleKeys, theme, times } from "./settings";
import { Text } from "./text";

export const PAGES: [string, string][] = [
  ["", "Overview"], ["jobs", "Jobs"], ["queues", "Queues"], ["types", "Types"], ["schedules", "Schedules"],
  ["fleets", "Fleets"], ["workers", "Workers"], ["shards", "Shards"], ["subscriptions", "Subscriptions"],
];

const MAY_SEE: Record<string, () => boolean> = { subscriptions: () => may("subscriptions") };

export const shownPages = (): [string, string][] => PAGES.filter(([name]) => MAY_SEE[name]?.() ?? true);

export function Header(): JSX.Element {
  const [open, setOpen] = useState(false);
  const place = segments.value[0] ?? "";
  useEffect(() => setOpen(false), [segments.value.join("/")]);
  return (
    <header class="top">
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.querySelector<HTMLElement>("main h1")?.focus();
      }}>Skip to content</a>
      <a class="brand" href={addressOf([])}>Penstock</a>
      <button type="button" class="menu" aria-expanded={open} aria-controls="places" onClick={() => setOpen(!open)}>Menu</button>
      <nav id="places" class={open ? "open" : ""} aria-label="Pages">
        {shownPages().map(([name, label]) => (
          <a key={name} href={addressOf(name ? [name] : [])} aria-current={name === place ? "page" : undefined}>{label}</a>
        ))}
        {may("jobs:write") ? <a class="narrow" href={addressOf(["new"])}>New job</a> : null}
        <button type="button" class="narrow" onClick={() => (panel.value = "palette")}>Search</button>
      </nav>
      <div class="tools">
        {may("jobs:write") ? <a class="button" href={addressOf(["new"])}>New job</a> : null}
        <button type="button" onClick={() => (panel.value = "palette")}>Search <kbd>Ctrl K</kbd></button>
        <LiveMark />
        <Preferences />
      </div>
    </header>
  );
}

const LIVE_WORDS = { off: "not following", connecting: "connecting", live: "live", polling: "polling", stale: "stale" };

function LiveMark(): JSX.Element {
  const state = liveState.value;
  const words = state === "stale" ? `as of ${staleSeconds.value} s ago` : LIVE_WORDS[state];
  return (
    <button type="button" class={`live ${state}`} aria-pressed={wanted.value} title="Follow live, or stop (p)" onClick={() => setWanted(!wanted.value)}>
      <span class="dot" aria-hidden="true" />{words}
    </button>
  );
}

function Preferences(): JSX.Element {
  const mine = session.value;
  return (
    <details class="preferences">
      <summary aria-label="Preferences">{mine?.name ? <Text of={mine.name} /> : "⋯"}</summary>
      <div class="sheet">
        <button type="button" onClick={() => cycle(times, ["relative", "local", "utc"])}>Times: {times.value}</button>
        <button type="button" onClick={() => cycle(theme, ["auto", "light", "dark"])}>Theme: {theme.value === "auto" ? "as the system" : theme.value}</button>
        <button type="button" onClick={() => cycle(density, ["comfortable", "compact"])}>Rows: {density.value}</button>
        <button type="button" onClick={() => cycle(singleKeys, ["on", "off"])}>Single keys: {singleKeys.value}</button>
        <button type="button" onClick={() => (panel.value = "help")}>Keyboard</button>
        {mine?.token ? <button type="button" onClick={() => attempt(signOut, "Signed out")}>Sign out</button> : null}
        <p class="small muted">Penstock {mine?.version}{mine?.name ? <>, as <Text of={mine.name} />: {mine.scopes.join(", ")}</> : ""}</p>
      </div>
    </details>
  );
}

export function Panels(): JSX.Element {
  return (
    <>
      <div class="said" role="status" aria-live="polite">{said.value ? <Text of={said.value} /> : null}</div>
      {panel.value === "palette" ? <Palette /> : null}
      {panel.value === "help" ? <Help /> : null}
      <Asking />
    </>
  );
}

function Help(): JSX.Element {
  const close = () => (panel.value = null);
  return (
    <Dialog label="Keyboard" close={close}>
      <h2>Keyboard</h2>
      <dl class="keys">
        {HELP.map(([keys, about]) => (
          <div key={keys}><dt>{keys.split(" ").map((one, number) => (one === "then" ? " then " : <kbd key={number}>{one}</kbd>))}</dt><dd>{about}</dd></div>
        ))}
      </dl>
      <div class="buttons"><button type="button" class="main" onClick={close}>Close</button></div>
    </Dialog>
  );
}

type Goal = { kind: string; name: string; address: string };

const JOB_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

function useGoals(): Goal[] {
  const [more, setMore] = useState<Goal[]>([]);
  useEffect(() => {
    const ignore = (error: unknown) => {
      if (!(error instanceof Refused)) throw error;
    };
    const add = (goals: Goal[]) => setMore((before) => [...before, ...goals]);
    ask<TypeList>("v1/types").then((read) => add(read.types.map((one) => ({ kind: "type", name: one.name, address: addressOf(["types", one.name]) }))), ignore);
    ask<SchedulePage>("v1/schedules?limit=200").then((read) => add(read.schedules.map((one) => ({ kind: "schedule", name: one.name, address: addressOf(["schedules", one.name]) }))), ignore);
  }, []);
  const read = digest.value;
  return useMemo(() => [
    ...shownPages().map(([name, label]) => ({ kind: "page", name: label, address: addressOf(name ? [name] : []) })),
    ...(may("jobs:write") ? [{ kind: "page", name: "New job", address: addressOf(["new"]) }] : []),
    ...(read?.queues ?? []).map((one) => ({ kind: "queue", name: one.name, address: addressOf(["queues", one.name]) })),
    ...(read?.fleets ?? []).map((one) => ({ kind: "fleet", name: one.name, address: addressOf(["fleets", one.name]) })),
    ...more,
  ], [more, read === null]);
}

const MOST_GOALS = 12;

function Palette(): JSX.Element {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const goals = useGoals();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const wanted = text.trim().toLowerCase();
  const found: Goal[] = JOB_ID.test(wanted)
    ? [{ kind: "job", name: wanted, address: addressOf(["jobs", wanted]) }]
    : [
        ...goals.filter((one) => `${one.kind} ${one.name}`.toLowerCase().includes(wanted)).slice(0, MOST_GOALS),
        ...(wanted ? [{ kind: "jobs", name: text.trim(), address: addressOf(["jobs"], { q: text.trim() }) }] : []),
      ];
  const close = () => (panel.value = null);
  const open = (goal: Goal | undefined) => {
    if (!goal) return;
    close();
    go(goal.address);
  };
  return (
    <Dialog label="Go to" class="palette" close={close}>
      <input
        ref={field} type="text" role="combobox" aria-expanded="true" aria-controls="goals" aria-label="Go to a page, a queue, a type or a job"
        aria-activedescendant={found.length ? `goal-${at}` : undefined} placeholder="a page, a queue, a type, a job's id" spellcheck={false} autocomplete="off"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
          else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
          else if (event.key === "Enter") open(found[at]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="goals" role="listbox" aria-label="Places">
        {found.map((goal, number) => (
          <li key={goal.address} id={`goal-${number}`} role="option" aria-selected={number === at} onClick={() => open(goal)}>
            <span class="muted">{goal.kind === "jobs" ? "jobs that match" : goal.kind}</span> <Text of={goal.name} />
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

export function SignIn(): JSX.Element {
  const [key, setKey] = useState("");
  const [onlyLook, setOnlyLook] = useState(false);
  const [error, setError] = useState("");
  const enter = async (event: Event) => {
    event.preventDefault();
    try {
      await signIn(key.trim(), onlyLook);
      start();
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      setError(problem.message);
    }
    setKey("");
  };
  return (
    <main id="main" class="sign-in">
      <form class="card" onSubmit={enter}>
        <h1 tabIndex={-1}>Sign in to Penstock</h1>
        <p class="muted">Show an API key once. This browser gets a session of twelve hours; the key itself is kept nowhere.</p>
        <label>API key
          <input type="password" name="key" autocomplete="off" required placeholder="pk_…" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
        <label class="check"><input type="checkbox" checked={onlyLook} onChange={(event) => setOnlyLook(event.currentTarget.checked)} /> Only look</label>
        {error ? <p class="problem" role="alert"><Text of={error} /></p> : null}
        <div class="buttons"><button type="submit" class="main">Sign in</button></div>
        <p class="small muted">No key? An admin makes one: <code>penstock keys create --name me --scope jobs:read</code></p>
      </form>
    </main>
  );
}

export { mustSignIn, readSession };
