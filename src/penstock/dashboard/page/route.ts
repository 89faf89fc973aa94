/** Addresses: everything that a view shows is in its address, so that a link shows the same to somebody else. */

import { computed, signal } from "@preact/signals";

/** The root of the page; the server's `<base>` is relative, so any prefix of a proxy is in it. */
export const root = new URL(".", document.baseURI);

/** The root of the API, beside the page. */
export const api = new URL("../", root);

const here = signal(location.href);

export const segments = computed(() =>
  new URL(here.value).pathname
    .slice(root.pathname.length)
    .split("/")
    .filter((part) => part !== "")
    .map(decode),
);
export const query = computed(() => new URL(here.value).searchParams);

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export type Terms = Record<string, string | number | null | undefined>;

/** The address of a view; terms that are null, undefined or empty are left out. */
export function addressOf(parts: string[], terms: Terms = {}): string {
  const url = new URL(parts.map(encodeURIComponent).join("/"), root);
  for (const [name, value] of Object.entries(terms))
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  return url.href;
}

/** The address of this view with other terms. */
export function addressWith(terms: Terms): string {
  const url = new URL(here.value);
  for (const [name, value] of Object.entries(terms))
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  return url.href;
}

export function go(address: string, replace = false): void {
  if (address === here.value) return;
  const samePage = new URL(address).pathname === new URL(here.value).pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  here.value = address;
  if (!samePage) {
    scrollTo(0, 0);
    requestAnimationFrame(() => document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true }));
  }
}

export function listen(): void {
  document.querySelector("base")!.href = root.href;
  addEventListener("popstate", () => (here.value = location.href));
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || !link.href.startsWith(root.href)) return;
    if (link.hash && link.href.split("#")[0] === here.value.split("#")[0]) return;
    event.preventDefault();
    go(link.href);
  });
}
