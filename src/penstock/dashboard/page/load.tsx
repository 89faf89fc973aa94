/** Reading from the API for a view: loading, there, stale, refused or gone, each said in words. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { digest } from "./live";
import { relative } from "./text";
import { ask, mustSignIn, Refused } from "./server";

export type Loaded<T> = {
  data: T | undefined;
  error: Refused | undefined;
  at: number;
  reload: () => void;
  set: (data: T) => void;
};

/**
 * What is at a path of the API; null reads nothing. With `every` it is read again after so many milliseconds, once the
 * live digest says that time has passed: nothing is read while the page is hidden or does not follow. `make` gives the
 * path anew for each reading, where it holds the time; `path` is then only the name of what is read.
 */
export function useLoad<T>(path: string | null, every = 0, make?: () => string): Loaded<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error?: Refused; at: number }>({ path, at: 0 });
  const [turn, setTurn] = useState(0);
  const readAt = useRef(0);
  const busy = useRef(false);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    busy.current = true;
    readAt.current = Date.now();
    ask<T>(make ? make() : path, { signal: abort.signal })
      .then(
        (data) => setState({ path, data, at: Date.now() }),
        (error: unknown) => {
          if (error instanceof Refused)
            setState((before) => ({ ...(before.path === path ? before : { at: 0 }), path, error }));
          else if (!abort.signal.aborted) throw error;
        },
      )
      .finally(() => (busy.current = false));
    return () => abort.abort();
  }, [path, turn, mustSignIn.value]);
  useEffect(() => {
    if (!every) return;
    return digest.subscribe((value) => {
      if (value && !busy.current && Date.now() - readAt.current >= every - 50) setTurn((before) => before + 1);
    });
  }, [path, every]);
  const fresh = state.path === path;
  return {
    data: fresh ? state.data : undefined,
    error: fresh ? state.error : undefined,
    at: state.at,
    reload: () => setTurn((before) => before + 1),
    set: (data) => setState({ path, data, at: Date.now() }),
  };
}

/** Lines of the final height, shown only where an answer takes its time. */
export function Waiting({ lines = 6 }: { lines?: number }): JSX.Element {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, number) => (
        <div key={number} />
      ))}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <div class="empty">{children}</div>;
}

export function Notice({ kind = "plain", children }: { kind?: "plain" | "warn" | "bad"; children: ComponentChildren }) {
  return <div class={`notice ${kind}`}>{children}</div>;
}

/** Why there is nothing to show, or why what is shown is old. */
export function Trouble({ of, at }: { of: Refused; at: number }): JSX.Element {
  if (of.status === 403)
    return <Notice kind="warn">Not allowed: {of.message}</Notice>;
  if (of.status === 404) return <Notice>There is no such thing: {of.message}</Notice>;
  if (at) return <Notice kind="warn">As of {relative(at)}; trying again. {of.message}</Notice>;
  return <Notice kind="bad">{of.message} Trying again.</Notice>;
}

/** A view of what was loaded, in whatever state that is. */
export function Show<T>(props: { of: Loaded<T>; lines?: number; children: (data: T) => ComponentChildren }): JSX.Element {
  const { data, error, at } = props.of;
  if (data === undefined) return error ? <Trouble of={error} at={0} /> : <Waiting lines={props.lines ?? 6} />;
  return (
    <div class={error ? "stale" : undefined}>
      {error ? <Trouble of={error} at={at} /> : null}
      {props.children(data)}
    </div>
  );
}

export function Missing({ shards }: { shards: number[] | undefined }): JSX.Element | null {
  if (!shards?.length) return null;
  const named = shards.length === 1 ? `Shard ${shards[0]} does` : `Shards ${shards.join(", ")} do`;
  return <Notice kind="warn">{named} not answer: their jobs are not in these numbers.</Notice>;
}
