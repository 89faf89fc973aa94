/** What is asked before something is done, and what is said after it. */

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused } from "./server";
import { Text } from "./text";

/** What the user's last action did; read out politely. */
export const said = signal("");

export function say(text: string): void {
  said.value = "";
  requestAnimationFrame(() => (said.value = text));
}

export type Question = {
  title: string;
  about: ComponentChildren;
  /** The same as a command, to copy. */
  command?: string;
  verb: string;
  danger?: boolean;
  act: () => Promise<unknown>;
  done?: string;
};

export const question = signal<Question | null>(null);

export function confirm(asked: Question): void {
  question.value = asked;
}

/** A modal dialog that closes with Escape, gives the focus back, and holds it meanwhile. */
export function Dialog(props: { label: string; close: () => void; class?: string; children: ComponentChildren }): JSX.Element {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = place.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={place}
      class={props.class}
      aria-label={props.label}
      onCancel={(event) => {
        event.preventDefault();
        props.close();
      }}
      onClick={(event) => {
        if (event.target === place.current) props.close();
      }}
    >
      {props.children}
    </dialog>
  );
}

export function Asking(): JSX.Element | null {
  const asked = question.value;
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  if (!asked) return null;
  const close = () => {
    setError("");
    question.value = null;
  };
  const act = async () => {
    setBusy(true);
    try {
      await asked.act();
      close();
      if (asked.done) say(asked.done);
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      setError(problem.message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog label={asked.title} close={close}>
      <h2>{asked.title}</h2>
      <div class="about">{asked.about}</div>
      {asked.command ? <Command text={asked.command} /> : null}
      {error ? <p class="problem" role="alert"><Text of={error} /></p> : null}
      <div class="buttons">
        <button type="button" onClick={close}>Leave it</button>
        <button type="button" class={asked.danger ? "danger" : "main"} disabled={busy} onClick={act}>{asked.verb}</button>
      </div>
    </Dialog>
  );
}

export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say("This browser does not let the page copy: select the text instead");
  }
}

/** A command to run in a terminal. */
export function Command({ text }: { text: string }): JSX.Element {
  return (
    <div class="command">
      <code><Text of={text} /></code>
      <button type="button" class="small" onClick={() => copy(text, "Command copied")}>Copy</button>
    </div>
  );
}

/** A word as a shell reads it. */
export const quoted = (word: string): string => (/^[\w.,:/=@+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** Do something at once, and say what became of it. */
export async function attempt(act: () => Promise<unknown>, done: string): Promise<void> {
  try {
    await act();
    say(done);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    say(problem.message);
  }
}
