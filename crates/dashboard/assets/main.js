// The page: puts its parts together, and keeps it alive.
import { html, render } from "./vendor/preact-htm.js";
import { hurry, live } from "./live.js";
import { placeOf, store } from "./state.js";
import { useStore } from "./store.js";
import { applyTheme } from "./views/parts.js";
import { Frame } from "./views/frame.js";
import { KeyForm, Narrow } from "./views/key.js";
import { Memory } from "./views/memory.js";
import { Engines } from "./views/engines.js";
import { Waiters } from "./views/waiters.js";
import { Denials } from "./views/denials.js";
import { Events } from "./views/events.js";
import { Logs } from "./views/logs.js";
import { Usage } from "./views/usage.js";
import { Chat } from "./views/chat.js";

function Pool({ state }) {
  return html`<div class="columns">
    <div class="stack"><${Memory} state=${state} /><${Engines} state=${state} /></div>
    <div class="stack">
      <${Waiters} state=${state} /><${Denials} state=${state} /><${Events} state=${state} most=${12} />
    </div>
  </div>`;
}

const VIEWS = {
  pool: Pool,
  events: ({ state }) => html`<${Events} state=${state} most=${400} />`,
  logs: Logs,
  usage: Usage,
  chat: Chat,
};

function App() {
  const state = useStore(store);
  const { phase } = state.link;
  const View = VIEWS[state.place.view] ?? Pool;
  const isKnown = state.status !== null || state.place.view === "chat";
  if (phase === "locked") return html`<${Frame} state=${state}><${KeyForm} state=${state} /><//>`;
  if (phase === "narrow" && state.place.view !== "chat") return html`<${Frame} state=${state}><${Narrow} state=${state} /><//>`;
  return html`<${Frame} state=${state}>${isKnown ? html`<${View} state=${state} />` : html`<p class="empty">Connecting …</p>`}<//>`;
}

addEventListener("hashchange", () => {
  store.set({ place: placeOf(location.hash) });
  scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
});
addEventListener("online", hurry);
document.addEventListener("visibilitychange", () => document.hidden || hurry());

applyTheme();
render(html`<${App} />`, document.getElementById("app"));
live();
