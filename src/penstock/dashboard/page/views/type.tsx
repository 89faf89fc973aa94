/** One job type: its past, its terms, and the shape of its params. */

import type { JSX } from "preact";
import { History } from "../history";
import { Notice, Show, useLoad } from "../load";
import { addressOf } from "../route";
import type { TypeList } from "../schema";
import { may } from "../server";
import { Link, NameLink, span, Text, Time } from "../text";
import { retryWords } from "./types";
import { Value } from "./value";

export default function TypeView({ name }: { name: string }): JSX.Element {
  const loaded = useLoad<TypeList>("v1/types");
  return (
    <>
      <h1 tabIndex={-1}><Text of={name} /> <small>type</small></h1>
      <Show of={loaded} lines={4}>
        {(read) => {
          const type = read.types.find((one) => one.name === name);
          if (!type) return <Notice>No worker has declared this type, or it was retired. Jobs of it may still be there: <Link to={["jobs"]} terms={{ q: `type:${name}` }}>its jobs</Link>.</Notice>;
          return (
            <>
              <div class="actions">
                {may("jobs:write") ? <a class="button main" href={addressOf(["new"], { type: name })}>New job</a> : null}
                <Link to={["jobs"]} terms={{ q: `type:${name}` }} class="button">Its jobs</Link>
                <Link to={["jobs"]} terms={{ q: `type:${name} state:failed` }} class="button">Failed ones</Link>
              </div>
              {type.description ? <p class="described"><Text of={type.description} /></p> : null}
              <dl class="facts card">
                <div><dt>Queue</dt><dd><NameLink kind="queues" name={type.queue} /></dd></div>
                <div><dt>Runs</dt><dd>{type.kind}</dd></div>
                <div><dt>Retries</dt><dd>{retryWords(type)}</dd></div>
                <div><dt>Timeout</dt><dd>{type.timeout_seconds === null ? "none" : span(type.timeout_seconds)}</dd></div>
                <div><dt>Priority</dt><dd class="num">{type.priority}</dd></div>
                <div><dt>Declared</dt><dd><Time at={type.declared_at} full /></dd></div>
                {type.run_as ? <div><dt>Run as</dt><dd><NameLink kind="types" name={type.run_as} /></dd></div> : null}
                {type.aliases.length ? <div><dt>Also runs</dt><dd>{type.aliases.map((one) => <span key={one}><NameLink kind="types" name={one} /> </span>)}</dd></div> : null}
              </dl>
            </>
          );
        }}
      </Show>
      <History title="Its jobs" type={name} fleets={[]} />
      <Schema read={loaded.data} name={name} />
    </>
  );
}

function Schema({ read, name }: { read: TypeList | undefined; name: string }): JSX.Element | null {
  const schema = read?.types.find((one) => one.name === name)?.params_schema;
  if (!schema) return null;
  return <section class="card"><header><h2>Params</h2></header><Value text={JSON.stringify(schema)} name="schema" /></section>;
}
