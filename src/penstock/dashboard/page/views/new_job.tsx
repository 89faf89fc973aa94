/** A new job: a form made from the schema of the type's params. Numbers are sent as they are typed. */

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Command, quoted, say } from "../dialogs";
import { Notice, Show, useLoad } from "../load";
import { addressOf, addressWith, go, query } from "../route";
import type { TypeItem, TypeList } from "../schema";
import { ask, may, Refused, type Job } from "../server";
import { Text } from "../text";

type Schema = { type?: string | string[]; enum?: unknown[]; anyOf?: Schema[]; $ref?: string; $defs?: Record<string, Schema>; properties?: Record<string, Schema>; required?: string[]; default?: unknown; description?: string; title?: string; format?: string };
type Kind = "text" | "number" | "boolean" | "choice" | "json";
type Field = { name: string; kind: Kind; required: boolean; nullable: boolean; choices: string[]; fallback: string; about: string };

/** The schema that a reference leads to, within the type's own definitions. */
function resolved(schema: Schema, root: Schema): Schema {
  const name = schema.$ref?.startsWith("#/$defs/") ? schema.$ref.slice("#/$defs/".length) : null;
  return name && root.$defs && Object.hasOwn(root.$defs, name) ? root.$defs[name]! : schema;
}

function fieldOf(name: string, given: Schema, root: Schema): Field {
  const choices = (given.anyOf ?? [given]).map((one) => resolved(one, root));
  const real = choices.filter((one) => one.type !== "null");
  const schema = real.length === 1 ? real[0]! : {};
  const said = given.default === undefined ? "" : typeof given.default === "string" ? given.default : JSON.stringify(given.default);
  const field = { name, required: root.required?.includes(name) ?? false, nullable: real.length < choices.length, choices: [] as string[], fallback: said, about: given.description ?? schema.description ?? "" };
  if (schema.enum) return { ...field, kind: "choice", choices: schema.enum.map((one) => JSON.stringify(one)) };
  switch (schema.type) {
    case "string": return { ...field, kind: "text" };
    case "integer": case "number": return { ...field, kind: "number" };
    case "boolean": return { ...field, kind: "boolean" };
    default: return { ...field, kind: "json" };
  }
}

const fieldsOf = (type: TypeItem | undefined): Field[] | null => {
  const schema = type?.params_schema as Schema | null | undefined;
  return schema?.properties ? Object.entries(schema.properties).map(([name, one]) => fieldOf(name, one, schema)) : null;
};

/** One value as JSON text; throws a SyntaxError for text that is none. */
function writeValue(field: Field, typed: string): string {
  if (field.kind === "text") return JSON.stringify(typed);
  JSON.parse(typed);
  return typed;
}

export function writeParams(fields: Field[], typed: Record<string, string>): string {
  const parts: string[] = [];
  for (const field of fields) {
    const text = typed[field.name];
    if (text === undefined || (text === "" && !(field.kind === "text" && field.required))) continue;
    parts.push(`${JSON.stringify(field.name)}: ${writeValue(field, text)}`);
  }
  return `{${parts.join(", ")}}`;
}

export default function NewJob(): JSX.Element {
  const types = useLoad<TypeList>("v1/types");
  const chosen = query.value.get("type") ?? "";
  const like = query.value.get("like");
  const model = useLoad<Job>(like ? `v1/jobs/${encodeURIComponent(like)}` : null);
  if (!may("jobs:write")) return <><h1 tabIndex={-1}>New job</h1><Notice kind="warn">This needs a key with the scope jobs:write.</Notice></>;
  return (
    <>
      <h1 tabIndex={-1}>New job</h1>
      <Show of={types} lines={3}>
        {(read) => {
          const type = read.types.find((one) => one.name === chosen);
          return (
            <div class="form card">
              <label>Type
                <select value={chosen} onChange={(event) => go(addressWith({ type: event.currentTarget.value, like: null }), true)}>
                  <option value="">choose one</option>
                  {read.types.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
                  {chosen && !type ? <option value={chosen}>{chosen}</option> : null}
                </select>
              </label>
              {chosen && (!like || model.data || model.error) ? <Form key={chosen} name={chosen} type={type} params={model.data?.params ?? "{}"} /> : null}
            </div>
          );
        }}
      </Show>
    </>
  );
}

function Form({ name, type, params }: { name: string; type: TypeItem | undefined; params: string }): JSX.Element {
  const fields = useMemo(() => fieldsOf(type), [type]);
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [raw, setRaw] = useState(params);
  const [asText, setAsText] = useState(fields === null || params !== "{}");
  const [options, setOptions] = useState({ priority: "", delay: "", tags: "", key: "" });
  const [error, setError] = useState("");
  useEffect(() => setRaw(params), [params]);
  const write = (): string => (asText || !fields ? raw : writeParams(fields, typed));
  let text = "";
  let fault = "";
  try {
    text = write();
    JSON.parse(text);
  } catch (problem) {
    fault = `The params are not JSON: ${(problem as Error).message}`;
  }
  const submit = async (event: Event) => {
    event.preventDefault();
    if (fault) return setError(fault);
    const parts = [`"type": ${JSON.stringify(name)}`, `"params": ${text}`];
    if (options.priority) parts.push(`"priority": ${Number(options.priority)}`);
    if (options.delay) parts.push(`"delay_seconds": ${Number(options.delay)}`);
    if (options.tags.trim()) parts.push(`"tags": ${JSON.stringify(options.tags.split(",").map((one) => one.trim()).filter(Boolean))}`);
    if (options.key) parts.push(`"idempotency_key": ${JSON.stringify(options.key)}`);
    try {
      const made = await ask<Job>("v1/jobs", { method: "POST", raw: `{${parts.join(", ")}}` });
      say("Submitted");
      go(addressOf(["jobs", made.id]));
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      setError(problem.message);
    }
  };
  const option = (label: string, key: keyof typeof options, hint: string) => (
    <label>{label}<input type="text" placeholder={hint} value={options[key]} onInput={(event) => setOptions({ ...options, [key]: event.currentTarget.value })} /></label>
  );
  return (
    <form onSubmit={submit}>
      {type?.description ? <p class="muted"><Text of={type.description} /></p> : null}
      {fields && !asText ? (
        <>
          {fields.length ? fields.map((field) => <Input key={field.name} field={field} value={typed[field.name]} set={(value) => setTyped({ ...typed, [field.name]: value })} />) : <p class="muted">It takes no params.</p>}
          <button type="button" class="small start" onClick={() => { if (!fault) setRaw(text); setAsText(true); }}>Write the params as JSON</button>
        </>
      ) : (
        <label>Params, as JSON
          <textarea rows={8} spellcheck={false} class="mono" value={raw} onInput={(event) => setRaw(event.currentTarget.value)} />
        </label>
      )}
      <details>
        <summary>Options</summary>
        <div class="fields">
          {option("Priority, 9 goes first", "priority", type ? String(type.priority) : "")}
          {option("Delay in seconds", "delay", "0")}
          {option("Tags, separated by commas", "tags", "")}
          {option("Idempotency key", "key", "")}
        </div>
      </details>
      {error ? <p class="problem" role="alert"><Text of={error} /></p> : null}
      <Command text={`penstock jobs submit ${quoted(name)} ${quoted(fault ? "{}" : text)}`} />
      <div class="buttons"><button type="submit" class="main">Submit</button></div>
    </form>
  );
}

function Input({ field, value, set }: { field: Field; value: string | undefined; set: (value: string) => void }): JSX.Element {
  const label = <span><Text of={field.name} />{field.required ? null : <span class="muted"> (optional)</span>}</span>;
  const about = field.about ? <span class="small muted"><Text of={field.about} /></span> : null;
  const hint = field.fallback ? `${field.fallback}, unless told otherwise` : "";
  if (field.kind === "boolean" || field.kind === "choice") {
    const choices = field.kind === "boolean" ? ["true", "false"] : field.choices;
    return (
      <label>{label}
        <select value={value ?? ""} required={field.required} onChange={(event) => set(event.currentTarget.value)}>
          <option value="">{field.fallback || "–"}</option>
          {choices.map((one) => <option key={one} value={one}>{one}</option>)}
        </select>{about}
      </label>
    );
  }
  if (field.kind === "json")
    return <label>{label}<textarea rows={3} class="mono" spellcheck={false} placeholder={hint || "JSON"} required={field.required} value={value ?? ""} onInput={(event) => set(event.currentTarget.value)} />{about}</label>;
  return (
    <label>{label}
      <input type="text" inputMode={field.kind === "number" ? "decimal" : "text"} placeholder={hint} required={field.required && field.kind === "number"} value={value ?? ""} onInput={(event) => set(event.currentTarget.value)} />{about}
    </label>
  );
}
