// What stands around every view: the name, where one can go, how the daemon is, what was said.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { key } from "../api.js";
import { bytes, count } from "../format.js";
import { hurry } from "../live.js";
import { lock, store } from "../state.js";
import { workOf } from "../actions.js";
import { Dialog } from "./dialog.js";
import { nextTheme, theme } from "./parts.js";

const VIEWS = [["pool", "Pool"], ["usage", "Usage"], ["chat", "Chat"], ["events", "Events"], ["logs", "Logs"]];

export function Frame({ state, children }) {
  const [chosen, setChosen] = useState(theme());
  const { status, place, notice } = state;
  const turn = () => {
    nextTheme();
    setChosen(theme());
    store.set({});
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <h1><${Mark} />Motorpool</h1>
      <${Link} state=${state} />
      <nav aria-label="Views">
        ${VIEWS.map(([view, label]) => html`
          <a href="#/${view}" aria-current=${place.view === view ? "page" : null}>${label}</a>`)}
      </nav>
      <div class="tools">
        <button class="quiet" onClick=${turn} aria-label="Theme: ${chosen}" title="Theme: ${chosen}">
          <${ThemeMark} chosen=${chosen} />
        </button>
        ${key.get() && state.link.phase !== "locked" && html`<button class="quiet" onClick=${lock}>Forget key</button>`}
      </div>
    </header>
    ${state.link.phase === "lost" && html`<${Lost} link=${state.link} />`}
    ${notice && html`<${Notice} notice=${notice} />`}
    <main id="main" tabindex="-1" class=${state.link.phase === "lost" ? "stale" : ""}>${children}</main>
    <footer>
      ${status && html`<span>Motorpool ${status.version}</span><span>${status.listen.join(", ")}</span>`}
      <span>With preact, htm and uPlot</span>
    </footer>
    <p class="unseen" role="status">${state.spoken}</p>
    ${state.dialog && html`<${Dialog} dialog=${state.dialog} />`}`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
    <rect class="mark-ground" width="32" height="32" rx="8" />
    <rect x="7" y="16" width="4.5" height="9" rx="1.5" /><rect x="13.75" y="7" width="4.5" height="18" rx="1.5" />
    <rect x="20.5" y="12" width="4.5" height="13" rx="1.5" />
  </svg>`;
}

const THEME_MARKS = {
  auto: "M12 3a9 9 0 1 0 0 18V3Z",
  light: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10ZM12 1v3M12 20v3M1 12h3M20 12h3M4.2 4.2l2.1 2.1M17.7 17.7l2.1 2.1M4.2 19.8l2.1-2.1M17.7 6.3l2.1-2.1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
};

function ThemeMark({ chosen }) {
  return html`<svg class="theme-mark" viewBox="0 0 24 24" aria-hidden="true">
    ${chosen === "auto" && html`<circle cx="12" cy="12" r="9" />`}<path d=${THEME_MARKS[chosen]} />
  </svg>`;
}

const LINKS = { connecting: ["busy", "Connecting"], lost: ["bad", "Disconnected"], locked: ["warn", "Locked"], narrow: ["warn", "Models only"] };

// How the daemon is, in a line.
function Link({ state: { link, status } }) {
  const [tone, text] = LINKS[link.phase] ?? (status.closing ? ["warn", "Closing"] : status.ready ? ["good", "Live"] : ["busy", "Starting"]);
  return html`<p class="link">
    <span class="pill ${tone}"><i aria-hidden="true"></i>${text}</span>
    ${link.phase === "live" && html`<span class="sum">${summary(status)}</span>`}
  </p>`;
}

function summary({ pool, engines }) {
  const ready = engines.filter((engine) => engine.phase === "ready").length;
  const work = engines.reduce((sum, engine) => sum + workOf(engine), 0);
  const bound = pool.budgetBytes ? ` of ${bytes(pool.budgetBytes)}` : "";
  return `${count(ready, "engine")} ready · ${count(work, "request")} · ${bytes(pool.committedBytes)}${bound} reserved`;
}

function Lost({ link }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const left = Math.max(0, Math.ceil((link.until - now) / 1000));
  return html`<div class="notice bad" role="alert">
    <span>${link.why ?? "The daemon does not answer."} What is shown is from before.</span>
    <span aria-hidden="true">Next try in ${left} s.</span>
    <button onClick=${hurry}>Try now</button>
  </div>`;
}

function Notice({ notice }) {
  return html`<div class="notice ${notice.tone}" role="status">
    <span>${notice.text}</span>
    <button class="quiet" onClick=${() => store.set({ notice: null })} aria-label="Dismiss">✕</button>
  </div>`;
}
