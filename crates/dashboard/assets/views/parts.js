// Small parts that several views use.
import { html } from "../vendor/preact-htm.js";
import { words } from "../format.js";
import { sparkline } from "../history.js";

const THEME = "motorpool.theme";
const THEMES = ["auto", "light", "dark"];

// The theme that was chosen; `auto` follows the system.
export function theme() {
  const chosen = localStorage.getItem(THEME);
  return THEMES.includes(chosen) ? chosen : "auto";
}

export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function nextTheme() {
  localStorage.setItem(THEME, THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  applyTheme();
}

const TONES = {
  ready: "good", starting: "busy", validating: "busy", "waits-for-room": "warn", "waits-for-slot": "busy",
  suspect: "warn", stopping: "busy", reclaiming: "busy", stuck: "bad",
};

const NAMES = { idle: "not loaded", unloaded: "not loaded" };

// What an engine is doing, as a word with a colour.
export function Phase({ engine }) {
  const isDrained = engine.drainers > 0 || engine.drained;
  const isFailed = engine.trouble && engine.phase === "idle";
  const tone = isFailed ? "bad" : isDrained ? "warn" : TONES[engine.phase] ?? "plain";
  const text = isFailed ? words(engine.trouble.state) : isDrained ? (engine.phase === "idle" ? "drained" : "draining") : NAMES[engine.phase] ?? words(engine.phase);
  return html`<span class="pill ${tone}"><i aria-hidden="true"></i>${text}</span>`;
}

// A row of throughput; nothing where nothing was seen.
export function Spark({ rates, label }) {
  const size = { width: 120, height: 28 };
  const path = rates ? sparkline(rates, size) : "";
  return html`<svg class="spark" viewBox="0 0 120 28" role="img" aria-label=${label} preserveAspectRatio="none">
    <line x1="0" y1="27" x2="120" y2="27" />${path && html`<path d=${path} />`}
  </svg>`;
}

// A part of the page under a heading.
export function Part({ title, id, more, children }) {
  return html`<section class="card" aria-labelledby=${id}>
    <header class="card-head"><h2 id=${id}>${title}</h2>${more}</header>
    ${children}
  </section>`;
}

// How far something is, in per-mille; `null`: nobody knows.
export function Progress({ permille, label }) {
  const value = permille === null ? {} : { value: permille };
  return html`<progress max="1000" ...${value} aria-label=${label}></progress>`;
}
