// All engines, and the models that have none.
import { html } from "../vendor/preact-htm.js";
import { count } from "../format.js";
import { Engine } from "./engine.js";
import { Part } from "./parts.js";

// Those that serve first, then those that are about to or leave; each in its order otherwise.
function ordered(engines) {
  const rank = ({ phase, slots, trouble }) => (slots ? 0 : phase !== "idle" ? 1 : trouble ? 2 : 3);
  return [...engines].sort((a, b) => rank(a) - rank(b));
}

// A model without an engine, as a row.
function asRow(model) {
  return { key: `${model.engine}:${model.id}:0`, model: model.id, phase: "unloaded", leases: [], queue: 0, catalog: model };
}

export function Engines({ state }) {
  const { engines } = state.status;
  const known = new Set(engines.map((engine) => engine.model));
  const rest = state.models.filter((model) => !known.has(model.id)).map(asRow);
  const live = ordered(engines);
  const shown = live.filter((engine) => engine.phase !== "idle" || engine.trouble || engine.drained);
  const past = [...live.filter((engine) => !shown.includes(engine)), ...rest];
  const ready = engines.filter((engine) => engine.phase === "ready").length;
  return html`<${Part} title="Engines" id="engines" more=${html`<span class="muted">${ready} ready of ${count(shown.length, "engine")}</span>`}>
    ${shown.length === 0 && html`<p class="empty">No engine runs. The first request to a model starts one.</p>`}
    <ul class="engines">${shown.map((engine) => html`<${Engine} key="${engine.key} ${engine.spawn}" engine=${engine} state=${state} />`)}</ul>
    ${past.length > 0 && html`<details class="past" open=${past.length <= 8}>
      <summary>${count(past.length, "model")} not loaded</summary>
      <ul class="engines slim">${past.map((engine) => html`<${Engine} key=${engine.key} engine=${engine} state=${state} />`)}</ul>
    </details>`}
  <//>`;
}
