// What an engine prints, as it prints it.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { hasRun } from "../actions.js";
import { pieces, stream } from "../api.js";
import { engineName } from "../format.js";
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
    const gone = new AbortController();
    setText("");
    follow(engine, gone.signal, (piece) => setText((text) => (text + piece).slice(-MOST_CHARACTERS)))
      .then(() => setTold(""), (error) => gone.signal.aborted || setTold(error.message));
    return () => gone.abort();
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

async function follow(key, signal, add) {
  const answer = await stream(`engines/${encodeURIComponent(key)}/logs?follow=1`, { signal });
  for await (const piece of pieces(answer)) add(piece);
}
