// One engine: what it does, whom it serves, what it takes, and what one may do with it.
import { html } from "../vendor/preact-htm.js";
import { actionsOf, hasRun, workOf } from "../actions.js";
import { bytes, count, duration, engineName, number, words } from "../format.js";
import { act } from "../state.js";
import { Phase, Progress, Spark } from "./parts.js";

export function Engine({ engine, state }) {
  const name = engineName(engine.key);
  const serves = engine.slots !== null && engine.slots !== undefined;
  return html`<li class="engine" aria-label=${name}>
    <div class="engine-name"><strong>${name}</strong><${Phase} engine=${engine} /></div>
    ${serves && html`<${Slots} engine=${engine} />`}
    ${serves && html`<${Pace} engine=${engine} sample=${state.samples[engine.key]} />`}
    ${engine.phase === "starting" && html`<div class="loading">
      <${Progress} permille=${engine.progress} label="${name} loads" />
      <span>${engine.progress === null ? "loading" : `${Math.floor(engine.progress / 10)} %`}</span></div>`}
    ${engine.reservedBytes > 0 && html`<p class="takes" title="reserved"><b>${bytes(engine.reservedBytes)}</b>
      <span>${engine.memory ? sourceText(engine) : "reserved"}</span></p>`}
    <${Buttons} engine=${engine} name=${name} state=${state} />
    ${hasRun(engine) && html`<${More} engine=${engine} />`}
    ${engine.trouble && html`<p class="trouble">${engine.trouble.message}${engine.trouble.endsInMs !== null && ` Tried again in ${duration(engine.trouble.endsInMs)}.`}</p>`}
  </li>`;
}

function sourceText({ memory, measuredBytes }) {
  if (measuredBytes !== null) return `measured ${bytes(measuredBytes)}`;
  return words(memory.from);
}

// A square for each slot, and who waits behind them.
function Slots({ engine }) {
  const used = engine.leases.length;
  const shown = Math.min(engine.slots, 16);
  const squares = Array.from({ length: shown }, (_, n) => html`<i class=${n < used ? "used" : ""}></i>`);
  return html`<p class="slots">
    <span class="squares" aria-hidden="true">${squares}</span>
    <span>${used} of ${count(engine.slots, "slot")}${engine.queue > 0 && html`, <b>${engine.queue} waiting</b>`}</span>
  </p>`;
}

function Pace({ sample }) {
  const rate = sample?.rates.at(-1) ?? 0;
  const text = `${number(Math.round(rate * 10) / 10)} tok/s`;
  return html`<p class="pace"><${Spark} rates=${sample?.rates} label="throughput" /><span title="pieces of replies in a second: of one that streams, about a token each">${text}</span></p>`;
}

const LABELS = { load: "Load", unload: "Unload", drain: "Drain", restart: "Restart", reset: "Reset" };

function Buttons({ engine, name, state }) {
  const isBegun = (action) => state.begun.includes(`${action} ${engine.key}`);
  const isOff = state.link.phase !== "live";
  return html`<div class="buttons">
    ${actionsOf(engine, state.hidden).map((action) => html`
      <button disabled=${isOff || isBegun(action)} aria-label="${LABELS[action]} ${name}" onClick=${() => act(action, engine)}>
        ${LABELS[action]}${isBegun(action) ? " …" : ""}</button>`)}
    ${hasRun(engine) && html`<a class="button" href="#/logs/${encodeURIComponent(engine.key)}" aria-label="Logs of ${name}">Logs</a>`}
  </div>`;
}

// What is only looked at when something is wrong.
function More({ engine }) {
  const { memory, leases, lastExit } = engine;
  return html`<details class="more"><summary>Details</summary>
    <dl>
      <dt>Engine</dt><dd><code>${engine.key}</code>${engine.pid && ` · process ${engine.pid}`}</dd>
      ${workOf(engine) > 0 && html`<dt>Requests</dt><dd>${leases.map((lease) => html`<div><code>${lease.request}</code> ${lease.lane}${lease.session && `, session ${lease.session}`}, for ${duration(lease.heldMs)}</div>`)}
        ${engine.queue > 0 && html`<div>${engine.queue} waiting</div>`}</dd>`}
      ${engine.sessions > 0 && html`<dt>Sessions</dt><dd>${engine.sessions} come back to it</dd>`}
      ${memory && html`<dt>Memory</dt><dd><${Figures} engine=${engine} /></dd>`}
      ${engine.unloadInMs !== null && html`<dt>Unloads</dt><dd>in ${duration(engine.unloadInMs)} unless it is asked</dd>`}
      ${engine.lastUseMs !== null && html`<dt>Last used</dt><dd>${duration(engine.lastUseMs)} ago</dd>`}
      ${lastExit && html`<dt>Last end</dt><dd>${words(lastExit.reason)}${lastExit.class && `, ${words(lastExit.class)}`}, ${duration(lastExit.endedMs)} ago, after ${duration(lastExit.livedMs)}
        ${lastExit.tail.length > 0 && html`<pre tabindex="0" aria-label="Last lines">${lastExit.tail.join("\n")}</pre>`}</dd>`}
    </dl>
  </details>`;
}

// What was planned, what is reserved, what was measured, by part.
function Figures({ engine: { memory } }) {
  const devices = [...new Set(["planned", "reserved", "measured"].flatMap((figure) => Object.keys(memory[figure].devices)))];
  const rows = [
    ...devices.map((device) => [device, (parts) => parts.devices[device]]),
    ["private", (parts) => parts.privateBytes],
    ["files", (parts) => parts.filesBytes],
  ];
  return html`<table><thead><tr><th scope="col">Part</th><th scope="col">${words(memory.from)}</th><th scope="col">reserved</th><th scope="col">measured</th></tr></thead>
    <tbody>${rows.map(([name, of]) => html`<tr><th scope="row">${name}</th>
      ${["planned", "reserved", "measured"].map((figure) => html`<td>${bytes(of(memory[figure]))}</td>`)}</tr>`)}</tbody></table>`;
}
