/**
 * JSON as text. Values of users are never turned into numbers and back: 9007199254740993 stays what it is, and so do
 * 1e400, keys that come twice, and their order.
 */

const RAW_KEYS = new Set(["params", "result"]);

/** The end of the string that begins at `start`, after its closing quote. */
function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** The end of the value that begins at `start`. */
function valueEnd(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; ) {
    const sign = text[at];
    if (sign === '"') {
      at = stringEnd(text, at);
      if (depth === 0) return at;
      continue;
    }
    if (sign === "{" || sign === "[") depth++;
    else if (sign === "}" || sign === "]") {
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
    } else if (depth === 0 && sign === ",") return at;
    at++;
  }
  return text.length;
}

const skipSpace = (text: string, at: number): number => {
  while (at < text.length && /\s/.test(text[at]!)) at++;
  return at;
};

/** An answer of the API, with `params` and `result` left as the text that was sent. */
export function parseAnswer(text: string): unknown {
  const parts: string[] = [];
  let kept = 0;
  for (let at = 0; at < text.length; ) {
    if (text[at] !== '"') {
      at++;
      continue;
    }
    const end = stringEnd(text, at);
    const colon = skipSpace(text, end);
    if (text[colon] === ":" && RAW_KEYS.has(text.slice(at + 1, end - 1))) {
      const start = skipSpace(text, colon + 1);
      const stop = valueEnd(text, start);
      parts.push(text.slice(kept, start), JSON.stringify(text.slice(start, stop).trimEnd()));
      kept = at = stop;
    } else at = end;
  }
  parts.push(text.slice(kept));
  return JSON.parse(parts.join(""));
}

/** JSON with line breaks and indents, each of its tokens exactly as it was; cut after about `most` characters. */
export function layOut(text: string, most: number): { text: string; whole: boolean } {
  const out: string[] = [];
  let size = 0;
  let depth = 0;
  const put = (piece: string) => {
    out.push(piece);
    size += piece.length;
  };
  const line = () => put("\n" + "  ".repeat(Math.min(depth, 40)));
  let at = 0;
  while (at < text.length && size < most) {
    const sign = text[at]!;
    if (sign === '"') {
      const end = stringEnd(text, at);
      put(text.slice(at, Math.min(end, at + most)));
      if (end - at > most) return { text: out.join(""), whole: false };
      at = end;
      continue;
    }
    at++;
    if (sign === "{" || sign === "[") {
      const next = skipSpace(text, at);
      if (text[next] === "}" || text[next] === "]") {
        put(sign + text[next]);
        at = next + 1;
      } else {
        put(sign);
        depth++;
        line();
      }
    } else if (sign === "}" || sign === "]") {
      depth--;
      line();
      put(sign);
    } else if (sign === ",") {
      put(sign);
      line();
    } else if (sign === ":") put(": ");
    else if (!/\s/.test(sign)) put(sign);
  }
  return { text: out.join(""), whole: at >= text.length };
}
