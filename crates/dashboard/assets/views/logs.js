// What an engine prints, as it prints it.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { hasRun } from "../actions.js";
import { pieces, stream } from "../api.js";
import { attention, shown } from "../attention.js";
import { engineName } from "../format.js";
import { backoff, inVain } from "../history.js";
import { Part } from "./parts.js";

const MOST_CHARACTERS = 400_000;

export function Logs({ state }) {
  const keys = [...new Set(state.status.engines.filter(hasRun).map((engine) => engine.key))];
  const key = state.place.rest || keys[0];
  return html`<${Part} title="Logs" id="logs" more=${html`<${Choice} keys=${keys} chosen=${key} />`}>
    ${key ? html`<${Log} key=${key} engine=${key} isLive=${state.link.phase === "live"} />` : html`<p class="empty">No engine has run yet.</p>`}
  <//>`;
}

function Choice({ keys, chosen }) {
  const all = chosen && !keys.includes(chosen) ? [chosen, ...keys] : keys;
  const go = (event) => {
    location.hash = `#/logs/${encodeURIComponent(event.target.value)}`;
  };
  return html`<label>Engine <select onChange=${go} value=${chosen}>${all.map((key) => html`<option value=${key}>${engineName(key)}</option>`)}</select></label>`;
}

function Log({ engine, isLive }) {
  const [text, setText] = useState("");
  const [told, setTold] = useState("");
  const place = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    if (!isLive) return;
    const left = new AbortController();
    setText("");
    follow(engine, left.signal, {
      begin: () => setTold(""),
      add: (piece, isFirst) => setText((text) => ((isFirst ? "" : text) + piece).slice(-MOST_CHARACTERS)),
      fail: (error) => setTold(error.message),
    });
    return () => left.abort();
  }, [engine, isLive]);
  useEffect(() => {
    if (follows.current) place.current.scrollTop = place.current.scrollHeight;
  }, [text]);
  const scrolled = ({ target }) => {
    follows.current = target.scrollHeight - target.scrollTop - target.clientHeight < 40;
  };
  return html`
    ${told && html`<p class="bad-text">${told}</p>`}
    <pre class="log" ref=${place} onScroll=${scrolled} tabindex="0" role="log" aria-live="off" aria-label="Log of ${engineName(engine)}">${text}</pre>`;
}

// Until it is left. A stream that ends is opened again, less and less often; each tells the log from its beginning.
export async function follow(key, left, { begin, add, fail }) {
  for (let failed = 0; ; ) {
    await shown();
    if (left.aborted) return;
    const gone = attention(left);
    const since = Date.now();
    try {
      const answer = await stream(`engines/${encodeURIComponent(key)}/logs?follow=1`, { signal: gone.signal });
      begin();
      let isFirst = true;
      for await (const piece of pieces(answer)) {
        add(piece, isFirst);
        isFirst = false;
      }
    } catch (error) {
      if (!gone.signal.aborted) fail(error);
    }
    if (gone.signal.aborted) continue;
    gone.abort();
    failed = inVain(failed, Date.now() - since);
    await new Promise((go) => setTimeout(go, backoff(failed++)));
  }
}
