/** Jobs: those that match a filter, newest first. New ones gather while somebody reads. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Command, confirm, quoted } from "../dialogs";
import { viewKeys } from "../keyboard";
import { digest } from "../live";
import { Empty, Missing, Show, useLoad } from "../load";
import { addressOf, addressWith, go, query } from "../route";
import type { JobPage, State } from "../schema";
import { ask, may, type Job } from "../server";
import { Brief, count, JobLink, Link, NameLink, Shape, Span, StateMark, STATES, Text, Time } from "../text";

const PAGE = 50;
const ENDED = new Set<State>(["succeeded", "failed", "cancelled", "expired"]);
const JOB_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const TERMS = ["state", "type", "queue", "tag"] as const;
type Term = (typeof TERMS)[number];
export type Filter = { terms: Partial<Record<Term, string>>; fault: string | null };

/** A filter as it is typed: `state:failed type:thumbnail`; a term in quotes may hold spaces. */
export function parseFilter(text: string): Filter {
  const terms: Partial<Record<Term, string>> = {};
  for (const found of text.matchAll(/(\S*?)"([^"]*)"|\S+/g)) {
    const [word] = found;
    const colon = word.indexOf(":");
    const name = colon < 0 ? "" : word.slice(0, colon);
    const value = found[2] ?? word.slice(colon + 1);
    const place = `at character ${found.index + 1}`;
    if (!(TERMS as readonly string[]).includes(name))
      return { terms, fault: `“${word}” ${place} is no term. Known are ${TERMS.map((one) => `${one}:`).join(" ")} and the id of a job.` };
    if (name in terms) return { terms, fault: `${name}: is there twice, again ${place}.` };
    if (name === "state" && !(STATES as readonly string[]).includes(value))
      return { terms, fault: `“${value}” ${place} is no state. Known are ${STATES.join(", ")}.` };
    terms[name as Term] = value;
  }
  return { terms, fault: null };
}

export const writeFilter = (terms: Filter["terms"]): string =>
  TERMS.filter((name) => terms[name]).map((name) => `${name}:${/\s/.test(terms[name]!) ? `"${terms[name]}"` : terms[name]}`).join(" ");

const commandFor = (terms: Filter["terms"]): string =>
  ["penstock jobs list", ...TERMS.filter((name) => terms[name]).map((name) => `--${name} ${quoted(terms[name]!)}`)].join(" ");

type Listed = Omit<JobPage, "jobs"> & { jobs: Job[] };

export default function Jobs(): JSX.Element {
  const text = query.value.get("q") ?? "";
  const cursor = query.value.get("cursor");
  const { terms, fault } = parseFilter(text);
  const path = new URLSearchParams({ ...terms, limit: String(PAGE), ...(cursor ? { cursor } : {}) });
  const loaded = useLoad<Listed>(fault ? null : `v1/jobs?${path}`, cursor ? 0 : 2000);
  return (
    <>
      <h1 tabIndex={-1}>Jobs</h1>
      <FilterField text={text} fault={fault} />
      <StateChoice terms={terms} />
      {fault ? null : (
        <Show of={loaded} lines={12}>
          {(page) => (
            <>
              <Missing shards={page.missing_shards} />
              <Rows key={`${text} ${cursor}`} page={page} terms={terms} changed={loaded.reload} />
              <nav class="pages" aria-label="Pages of jobs">
                {cursor ? <a href={addressWith({ cursor: null })}>Newest</a> : null}
                {page.cursor ? <a href={addressWith({ cursor: page.cursor })}>Older</a> : null}
              </nav>
            </>
          )}
        </Show>
      )}
      <details class="as-command"><summary>As a command</summary><Command text={commandFor(terms)} /></details>
    </>
  );
}

function FilterField({ text, fault }: { text: string; fault: string | null }): JSX.Element {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  const enter = (event: Event) => {
    event.preventDefault();
    const wanted = typed.trim();
    go(JOB_ID.test(wanted) ? addressOf(["jobs", wanted]) : addressOf(["jobs"], { q: wanted }));
  };
  return (
    <form class="filter" role="search" onSubmit={enter}>
      <input
        type="search" data-filter aria-label="Filter jobs" aria-invalid={fault !== null} aria-describedby={fault ? "fault" : undefined}
        placeholder="state:failed type:thumbnail queue:… tag:…  or a job's id" spellcheck={false} autocomplete="off"
        value={typed} onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <button type="submit">Filter</button>
      {fault ? <p id="fault" class="problem" role="alert"><Text of={fault} /></p> : null}
    </form>
  );
}

/** Links to each state, with counts where they are known exactly. */
function StateChoice({ terms }: { terms: Filter["terms"] }): JSX.Element {
  const read = digest.value;
  const queue = terms.queue ? read?.queues.find((one) => one.name === terms.queue) : undefined;
  const jobs = terms.type || terms.tag ? null : terms.queue ? queue?.jobs : read?.jobs;
  return (
    <ul class="states">
      <li><Link to={["jobs"]} terms={{ q: writeFilter({ ...terms, state: undefined }) }} class={terms.state ? "" : "on"}>all</Link></li>
      {STATES.map((state) => (
        <li key={state}>
          <Link to={["jobs"]} terms={{ q: writeFilter({ ...terms, state }) }} class={terms.state === state ? "on" : ""}>
            <Shape of={state} />{state}{jobs ? <b class="num"> {count(jobs[state] ?? 0)}</b> : null}
          </Link>
        </li>
      ))}
    </ul>
  );
}

/** The rows to show of those that were read: new ones wait while somebody reads, those shown are kept up to date. */
function useGathered(page: Listed, reading: () => boolean): { rows: Job[]; held: number; release: () => void } {
  const [shown, setShown] = useState<Listed>(page);
  const latest = useRef(page);
  latest.current = page;
  const known = new Set(shown.jobs.map((job) => job.id));
  const held = page.jobs.filter((job) => !known.has(job.id)).length;
  useEffect(() => {
    if (!reading() || held === 0) setShown(page);
  }, [page]);
  if (held === 0 || shown === page) return { rows: page.jobs, held: 0, release: () => undefined };
  const fresh = new Map(page.jobs.map((job) => [job.id, job]));
  return { rows: shown.jobs.map((job) => fresh.get(job.id) ?? job), held, release: () => setShown(latest.current) };
}

function Rows({ page, terms, changed }: { page: Listed; terms: Filter["terms"]; changed: () => void }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const reading = () => place.current?.matches(":hover, :focus-within") ?? false;
  const { rows, held, release } = useGathered(page, reading);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const choose = (id: string) => setChosen((before) => (before.has(id) ? new Set([...before].filter((one) => one !== id)) : new Set([...before, id])));
  const picked = rows.filter((job) => chosen.has(job.id));
  const mayAct = may("jobs:cancel") || may("jobs:write");
  useEffect(() => {
    const focused = () => rows.find((job) => document.activeElement?.closest("tr")?.dataset.row === job.id);
    const or = (): Job[] => (picked.length ? picked : [focused()].filter((job) => job !== undefined));
    viewKeys.value = {
      x: () => focused() && choose(focused()!.id),
      a: () => setChosen(chosen.size === rows.length ? new Set() : new Set(rows.map((job) => job.id))),
      r: () => may("jobs:write") && actOn("retry", or(), changed),
      c: () => may("jobs:cancel") && actOn("cancel", or(), changed),
    };
    return () => void (viewKeys.value = {});
  }, [rows, chosen]);
  if (!rows.length)
    return (
      <Empty>
        {Object.keys(terms).length ? <p>No job matches <code><Text of={writeFilter(terms)} /></code>.</p> : <><p>No job yet. To make one:</p><Command text="penstock jobs submit add a=1 b=2" /></>}
      </Empty>
    );
  return (
    <div ref={place}>
      {held ? <p class="gathered"><button type="button" onClick={release}>{count(held)} new</button></p> : null}
      {picked.length ? (
        <div class="picked" role="group" aria-label="Selected jobs">
          {count(picked.length)} selected
          {may("jobs:write") ? <button type="button" onClick={() => actOn("retry", picked, changed)}>Retry…</button> : null}
          {may("jobs:cancel") ? <button type="button" onClick={() => actOn("cancel", picked, changed)}>Cancel…</button> : null}
          <button type="button" onClick={() => setChosen(new Set())}>Select none</button>
        </div>
      ) : null}
      <table class="card jobs">
        <thead>
          <tr>
            {mayAct ? <th scope="col" class="choose"><span class="hidden">Selected</span></th> : null}
            <th scope="col">State</th><th scope="col">Type</th><th scope="col">Job</th><th scope="col">Params</th>
            <th scope="col" class="num">Attempt</th><th scope="col" class="num">Ran</th><th scope="col" class="num">Created</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((job) => (
            <tr key={job.id} data-row={job.id} class={chosen.has(job.id) ? "on" : undefined}>
              {mayAct ? <td class="choose"><input type="checkbox" aria-label={`Select job ${job.id}`} checked={chosen.has(job.id)} onChange={() => choose(job.id)} /></td> : null}
              <td data-label="State"><StateMark of={job.state} /></td>
              <td data-label="Type"><NameLink kind="types" name={job.type} />{job.queue === job.type ? null : <span class="muted"> in <Text of={job.queue} /></span>}</td>
              <th scope="row" data-label="Job"><JobLink id={job.id} /></th>
              <td data-label="Params" class="params">
                <code>{job.omitted.includes("params") ? "(large)" : <Brief of={job.params} most={100} />}</code>
                {job.error && job.state !== "succeeded" ? <div class="small state-failed"><Brief of={`${job.error.error_class ?? job.error.code}: ${job.error.message}`} /></div> : null}
                {job.reason && !ENDED.has(job.state) ? <div class="small muted"><Text of={job.reason} /></div> : null}
                {job.tags.length ? <div class="tags">{job.tags.map((tag) => <Link key={tag} to={["jobs"]} terms={{ q: writeFilter({ tag }) }} class="tag"><Brief of={tag} most={40} /></Link>)}</div> : null}
              </td>
              <td class="num" data-label="Attempt">{job.attempt}/{job.max_attempts}</td>
              <td class="num" data-label="Ran"><Span from={job.started_at} to={job.completed_at ?? (ENDED.has(job.state) ? job.started_at : null)} /></td>
              <td class="num" data-label="Created"><Time at={job.created_at} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Ask, then cancel or retry each of the jobs that can be. */
export function actOn(verb: "cancel" | "retry", jobs: Job[], done: () => void): void {
  const fit = jobs.filter((job) => ENDED.has(job.state) === (verb === "retry"));
  const others = jobs.length - fit.length;
  if (!jobs.length) return;
  const words = verb === "cancel" ? "have ended already" : "have not ended";
  confirm({
    title: `${verb === "cancel" ? "Cancel" : "Retry"} ${count(fit.length)} ${fit.length === 1 ? "job" : "jobs"}?`,
    about: (
      <>
        <p>{verb === "cancel" ? "Those that wait will never start; those that run are asked to stop." : "Each is submitted again as a new job with the same params."}</p>
        {others ? <p class="muted">{count(others)} of {count(jobs.length)} {words} and are left as they are.</p> : null}
      </>
    ),
    command: `penstock jobs ${verb} ${fit.map((job) => job.id).join(" ")}`,
    verb: verb === "cancel" ? "Cancel them" : "Retry them",
    danger: verb === "cancel",
    act: async () => {
      for (const job of fit) await ask(`v1/jobs/${job.id}/${verb}`, { method: "POST" });
      done();
    },
    done: `${count(fit.length)} ${verb === "cancel" ? "cancelled or asked to stop" : "retried"}`,
  });
}
