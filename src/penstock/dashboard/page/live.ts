/** The live digest: one stream per page that is looked at, polling where streams fail, nothing while it is hidden. */

import { computed, signal } from "@preact/signals";
import type { LiveDigest } from "./schema";
import { ask, mustSignIn, readSession, Refused, urlOf } from "./server";

const HIDDEN_MS = 5_000;
const STALE_MS = 12_000;
const POLL_MS = 5_000;
const POLL_MOST_MS = 60_000;
const FAILURES = 3;

export const digest = signal<LiveDigest | null>(null);
export const wanted = signal(true);
/** Now, by this browser's clock; moves each second, for times that are relative. */
export const now = signal(Date.now());
const heardAt = signal(0);
const polling = signal(false);

export type LiveState = "off" | "connecting" | "live" | "polling" | "stale";
export const liveState = computed<LiveState>(() => {
  if (!wanted.value) return "off";
  if (!heardAt.value) return "connecting";
  if (now.value - heardAt.value > STALE_MS) return "stale";
  return polling.value ? "polling" : "live";
});
export const staleSeconds = computed(() => Math.round((now.value - heardAt.value) / 1000));

/** How far the server's clock is ahead of this browser's: times are told by the server's. */
export const skew = signal(0);

let source: EventSource | null = null;
let failures = 0;
let pollTimer = 0;
let pollDelay = POLL_MS;
let hiding = 0;

function take(text: string): void {
  const read = JSON.parse(text) as LiveDigest;
  heardAt.value = now.value = Date.now();
  skew.value = Date.parse(read.at) - heardAt.value;
  // Drawn with the next frame, however many come.
  requestAnimationFrame(() => (digest.value = read));
}

function open(): void {
  if (source || !wanted.value || mustSignIn.value || document.hidden) return;
  const mine = (source = new EventSource(urlOf("v1/live")));
  mine.addEventListener("digest", (event) => {
    failures = 0;
    stopPolling();
    take((event as MessageEvent<string>).data);
  });
  mine.addEventListener("refused", () => {
    close();
    void readSession();
  });
  mine.addEventListener("error", () => {
    failures++;
    // The browser tries again by itself unless the server refused.
    if (mine.readyState === EventSource.CLOSED || failures >= (heardAt.peek() ? FAILURES : 1)) {
      close();
      poll();
    }
  });
}

function close(): void {
  source?.close();
  source = null;
}

function stopPolling(): void {
  clearTimeout(pollTimer);
  pollTimer = 0;
  pollDelay = POLL_MS;
  polling.value = false;
}

function poll(): void {
  if (pollTimer || !wanted.value || document.hidden) return;
  const again = (delay: number) => {
    clearTimeout(pollTimer);
    pollTimer = window.setTimeout(() => {
      pollTimer = 0;
      poll();
    }, delay);
  };
  again(pollDelay);
  ask<LiveDigest>("v1/live?once=true").then(
    (read) => {
      polling.value = true;
      take(JSON.stringify(read));
      // It answers again: a stream may, too. Until one does, this is polling.
      clearTimeout(pollTimer);
      pollTimer = failures = 0;
      pollDelay = POLL_MS;
      open();
    },
    (error) => {
      if (error instanceof Refused && error.status === 401) return stopPolling();
      pollDelay = Math.min(2 * pollDelay, POLL_MOST_MS);
      again(pollDelay);
    },
  );
}

export function setWanted(value: boolean): void {
  wanted.value = value;
  if (value) start();
  else {
    close();
    stopPolling();
  }
}

/** Begin, or begin again after signing in. */
export function start(): void {
  failures = 0;
  close();
  stopPolling();
  open();
}

export function listen(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = window.setTimeout(close, HIDDEN_MS);
    else if (!source) start();
  });
}
