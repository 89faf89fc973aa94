/** The beginning: who looks, what they look at, and around it what every view has. */

import "./style.css";
import { render, type FunctionComponent, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as keyboard from "./keyboard";
import * as live from "./live";
import { Notice, Waiting } from "./load";
import * as route from "./route";
import { mustSignIn, readSession, Refused, session } from "./server";
import { Header, Panels, SignIn } from "./shell";
import { Link } from "./text";

type View = { default: FunctionComponent<{ name: string }> };

const VIEWS: Record<string, () => Promise<View>> = {
  "": () => import("./views/overview"),
  jobs: () => import("./views/jobs"),
  "jobs/": () => import("./views/job"),
  queues: () => import("./views/queues"),
  "queues/": () => import("./views/queue"),
  types: () => import("./views/types"),
  "types/": () => import("./views/type"),
  new: () => import("./views/new_job"),
  schedules: () => import("./views/schedules"),
  "schedules/": () => import("./views/schedule"),
  fleets: () => import("./views/fleets"),
  "fleets/": () => import("./views/fleet"),
  workers: () => import("./views/workers"),
  shards: () => import("./views/shards"),
  subscriptions: () => import("./views/subscriptions"),
};

function CurrentView(): JSX.Element {
  const [place = "", name, ...more] = route.segments.value;
  const key = more.length ? "nowhere" : name === undefined ? place : `${place}/`;
  const [view, setView] = useState<{ key: string; draw: FunctionComponent<{ name: string }> } | null>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    let left = false;
    VIEWS[key]?.().then(
      (file) => left || setView({ key, draw: file.default }),
      () => left || setFailed(true),
    );
    return () => void (left = true);
  }, [key]);
  if (failed)
    return <Notice kind="warn">The page was replaced by a newer one, or the server does not answer. <a href={location.href} target="_self">Load it again</a></Notice>;
  if (!(key in VIEWS)) return <Nowhere />;
  const Draw = view?.key === key ? view.draw : null;
  return Draw ? <Draw key={name ?? ""} name={name ?? ""} /> : <Waiting />;
}

function Nowhere(): JSX.Element {
  return (
    <>
      <h1 tabIndex={-1}>There is nothing here</h1>
      <p>This address leads nowhere. Try the <Link to={[]}>overview</Link>, or search with <kbd>Ctrl K</kbd>.</p>
    </>
  );
}

function Page(): JSX.Element {
  if (mustSignIn.value) return <><SignIn /><Panels /></>;
  if (!session.value) return <main id="main"><Waiting /></main>;
  return (
    <>
      <Header />
      <main id="main"><CurrentView /></main>
      <Panels />
    </>
  );
}

async function begin(): Promise<void> {
  route.listen();
  keyboard.listen();
  live.listen();
  render(<Page />, document.getElementById("page")!);
  for (let delay = 1000; !session.value && !mustSignIn.value; delay = Math.min(2 * delay, 30_000)) {
    try {
      await readSession();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      await new Promise((done) => setTimeout(done, delay));
    }
  }
  live.start();
}

void begin();
