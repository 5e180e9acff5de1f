// What happened, the newest first.
import { html } from "../vendor/preact-htm.js";
import { clock } from "../format.js";
import { matters, sentence, tone } from "../news.js";
import { Part } from "./parts.js";

export function Events({ state, most }) {
  const isShort = most < 50;
  const shown = state.events.filter((event) => !isShort || matters(event)).slice(-most).reverse();
  const more = isShort ? html`<a href="#/events">All events</a>` : null;
  return html`<${Part} title="Events" id="events" more=${more}>
    ${shown.length === 0 && html`<p class="empty">Nothing happened yet.</p>`}
    <ol class="events">${shown.map((event) => {
      const { who, text } = sentence(event);
      return html`<li key=${event.id ?? `${event.at}`} class=${tone(event)}>
        <time datetime=${new Date(event.at).toISOString()}>${clock(event.at)}</time>
        <span>${who && html`<strong>${who}</strong> `}${text}</span>
      </li>`;
    })}</ol>
  <//>`;
}
