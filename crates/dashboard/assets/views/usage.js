// What models were asked over time, drawn by uPlot and summed in a table.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { read } from "../api.js";
import { number } from "../format.js";
import { stacked, totals } from "../history.js";
import { Part, theme } from "./parts.js";

const SPANS = { "24h": { label: "24 hours", by: "hour" }, "168h": { label: "7 days", by: "hour" }, "720h": { label: "30 days", by: "day" } };
const FIGURES = { generated: "Tokens generated", prompt: "Tokens of prompts", requests: "Requests", errors: "Errors" };

export function Usage({ state }) {
  const [span, setSpan] = useState("24h");
  const [what, setWhat] = useState("generated");
  const [told, setTold] = useState(null);
  const isLive = state.link.phase === "live";
  useEffect(() => {
    if (!isLive) return;
    const ask = () => read(`usage?by=${SPANS[span].by}&since=${span}`).then(setTold, (error) => setTold({ error }));
    ask();
    const timer = setInterval(ask, 30_000);
    return () => clearInterval(timer);
  }, [span, isLive]);
  const more = html`<span class="choices">
    <${Choice} label="Figure" options=${Object.entries(FIGURES)} value=${what} choose=${setWhat} />
    <${Choice} label="Time" options=${Object.entries(SPANS).map(([value, { label }]) => [value, label])} value=${span} choose=${setSpan} /></span>`;
  return html`<${Part} title="Usage" id="usage" more=${more}><${Shown} told=${told} what=${what} /><//>`;
}

function Choice({ label, options, value, choose }) {
  return html`<label>${label} <select value=${value} onChange=${(event) => choose(event.target.value)}>
    ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`;
}

function Shown({ told, what }) {
  if (told === null) return html`<p class="empty">Reading …</p>`;
  if (told.error) {
    const isMissing = told.error.status === 404 || told.error.status === 501;
    return html`<p class="empty">${isMissing ? "No history: this daemon keeps none." : told.error.message}</p>`;
  }
  if (told.kept === false) return html`<p class="empty">No history: this daemon keeps none.</p>`;
  if (told.rows.length === 0) return html`<p class="empty">No history in this time.</p>`;
  return html`<${Plot} rows=${told.rows} what=${what} /><${Table} rows=${told.rows} />`;
}

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];

function Plot({ rows, what }) {
  const place = useRef(null);
  const look = theme();
  useEffect(() => {
    const { times, models, lines } = stacked(rows, what);
    const colour = (name) => resolved(place.current, name);
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const bars = uPlot.paths.bars({ size: [0.8, 60] });
    // The highest stack is drawn first, so that those below it stay to be seen.
    const series = models.map((label, n) => ({ label, paths: bars, fill: colour(COLOURS[n % COLOURS.length]), width: 0, points: { show: false } }));
    const size = () => ({ width: place.current.clientWidth, height: 300 });
    const values = (_, splits) => splits.map((n) => number(n));
    const options = { ...size(), legend: { show: false }, cursor: { points: { show: false }, drag: { x: false, y: false } }, series: [{}, ...series.reverse()],
      axes: [axis, { ...axis, values, size: 60 }], scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } } };
    const plot = new uPlot(options, [times, ...lines.reverse()], place.current);
    const watcher = new ResizeObserver(() => plot.setSize(size()));
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      plot.destroy();
    };
  }, [rows, what, look]);
  const { models } = stacked(rows, what);
  return html`<div class="plot" ref=${place} role="img" aria-label="${FIGURES[what]} over time, by model; the sums are in the table below"></div>
    <ul class="legend" aria-hidden="true">${models.map((model, n) => html`<li><i class="swatch line-${(n % COLOURS.length) + 1}"></i>${model}</li>`)}</ul>`;
}

// A canvas takes colours, not variables whose value depends on the theme.
function resolved(place, name) {
  const probe = place.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function Table({ rows }) {
  const names = ["requests", "errors", "prompt", "cached", "generated"];
  return html`<div class="wide" tabindex="0" role="region" aria-label="Sums by model"><table><thead><tr><th scope="col">Model</th>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${totals(rows).map((sum) => html`<tr><th scope="row">${sum.model}</th>${names.map((name) => html`<td>${number(sum[name])}</td>`)}</tr>`)}</tbody></table></div>`;
}
