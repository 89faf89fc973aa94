/** A value of a user: JSON laid out, or text; its beginning first, more on demand. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { copy } from "../dialogs";
import { layOut } from "../json_text";
import { bytes, Text } from "../text";

const STEP = 64 * 1024;

export function Value({ text, name, json = true }: { text: string; name: string; json?: boolean }): JSX.Element {
  const [most, setMost] = useState(STEP);
  const shown = useMemo(() => (json ? layOut(text, most) : { text: text.slice(0, most), whole: text.length <= most }), [text, most, json]);
  const save = () => {
    const url = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${name}.${json ? "json" : "txt"}`;
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <div class="value">
      <pre tabIndex={0} role="region" aria-label={name}><Text of={shown.text} /></pre>
      <div class="buttons">
        {shown.whole ? null : <button type="button" class="small" onClick={() => setMost(most * 4)}>Show more of {bytes(text.length)}</button>}
        <button type="button" class="small" onClick={() => copy(text, `${name} copied`)}>Copy</button>
        <button type="button" class="small" onClick={save}>Download</button>
      </div>
    </div>
  );
}
