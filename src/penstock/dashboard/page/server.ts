/** Requests to the API, the session of this browser, and what it may do. */

import { signal } from "@preact/signals";
import { parseAnswer } from "./json_text";
import { api } from "./route";
import type { JobItem, KeyScope, Problem, ScheduleItem, SessionItem } from "./schema";

/** A job whose params and result are the JSON text that was sent. */
export type Job = Omit<JobItem, "params" | "result"> & { params: string; result: string };
export type Schedule = Omit<ScheduleItem, "params"> & { params: string };

export const session = signal<SessionItem | null>(null);
export const mustSignIn = signal(false);

/** What went wrong with a request, in words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code = "",
  ) {
    super(message);
  }
}

export const may = (scope: KeyScope): boolean => {
  const scopes = session.value?.scopes ?? [];
  return scopes.includes(scope) || scopes.includes("admin");
};

export type Request = { method?: string; body?: unknown; raw?: string; key?: string; signal?: AbortSignal };

export const urlOf = (path: string): string => new URL(path, api).href;

/** One request; its answer, or Refused. `raw` is a body that is JSON text already. */
export async function ask<T>(path: string, request: Request = {}): Promise<T> {
  const { method = "GET", body, raw, key, signal: abort } = request;
  const headers: Record<string, string> = { accept: "application/json" };
  const content = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  if (content !== undefined) headers["content-type"] = "application/json";
  if (key) headers["authorization"] = `Bearer ${key}`;
  else if (method !== "GET" && session.value?.token) headers["penstock-token"] = session.value.token;
  const answer = await send(path, { method, headers, body: content ?? null, signal: abort ?? null });
  const text = await answer.text();
  if (answer.ok) return (text ? parseAnswer(text) : undefined) as T;
  throw refusal(answer, text, key !== undefined);
}

async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(urlOf(path), { ...init, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer.");
  }
}

function refusal(answer: Response, text: string, signingIn: boolean): Refused {
  let problem: Partial<Problem> = {};
  try {
    problem = JSON.parse(text) as Problem;
  } catch {
    // Not from Penstock: a proxy, perhaps.
  }
  if (answer.status === 401 && !signingIn) mustSignIn.value = true;
  return new Refused(answer.status, problem.detail ?? `The server answered ${answer.status}.`, problem.code);
}

export async function readSession(): Promise<void> {
  try {
    session.value = await ask<SessionItem>("v1/session");
    mustSignIn.value = false;
  } catch (error) {
    if (!(error instanceof Refused && error.status === 401)) throw error;
  }
}

/** Sign in with a key, which is sent once and kept nowhere. */
export async function signIn(key: string, onlyLook: boolean): Promise<void> {
  const body = onlyLook ? { scopes: ["jobs:read"] } : {};
  session.value = await ask<SessionItem>("v1/session", { method: "POST", body, key });
  mustSignIn.value = false;
}

export async function signOut(): Promise<void> {
  await ask("v1/session", { method: "DELETE" });
  session.value = null;
  mustSignIn.value = true;
}
