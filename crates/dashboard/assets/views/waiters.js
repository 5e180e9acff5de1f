// Builds that wait for room, and what each waits for.
import { html } from "../vendor/preact-htm.js";
import { bytes, duration, engineName } from "../format.js";
import { Part } from "./parts.js";

export function Waiters({ state: { status } }) {
  const { waiters } = status;
  return html`<${Part} title="Waiting for room" id="waiting">
    ${waiters.length === 0 && html`<p class="empty">Nothing waits.</p>`}
    <ul class="waiters">${waiters.map((waiter) => html`<li key=${waiter.key}>
      <p><strong>${engineName(waiter.key)}</strong> needs ${bytes(waiter.needsBytes)}, for ${duration(waiter.waitedMs)} so far</p>
      <p class="muted">${waiter.waitsFor.length ? `until ${waiter.waitsFor.map(engineName).join(" and ")} has given its room back` : "until there is room"}</p>
    </li>`)}</ul>
  <//>`;
}
