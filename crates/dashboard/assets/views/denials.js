// The last denials, each with the arithmetic that proves it.
import { html } from "../vendor/preact-htm.js";
import { denials } from "../denials.js";
import { bytes, clock, engineName, words } from "../format.js";
import { Part } from "./parts.js";

export function Denials({ state }) {
  const told = denials(state.listed, state.events).slice(0, 5);
  return html`<${Part} title="Denials" id="denials">
    ${told.length === 0 && html`<p class="empty">Nothing was denied.</p>`}
    <ul class="denials">${told.map((denial) => html`<${Denial} key="${denial.key} ${denial.at}" denial=${denial} />`)}</ul>
  <//>`;
}

function Denial({ denial }) {
  const { at, bound, committed, context, help, holders, key, message, requested, short, tenants, which, would } = denial;
  const scale = Math.max(would, bound, 1);
  const part = (n) => `${(100 * n) / scale}%`;
  const kept = committed ?? 0;
  return html`<li>
    <p><strong>${engineName(key)}</strong> <time class="muted">${clock(at)}</time></p>
    <div class="proof" aria-hidden="true"><span class="declared" style=${{ width: part(kept) }}></span><span class="over" style=${{ width: part(would - kept) }}></span>
      <i style=${{ left: part(bound) }}></i></div>
    <p class="sum-line">${context ? `A context of ${context.asked} was asked, ${context.fits} would fit: ` : ""}${requested !== null && `${context ? "it" : "It"} needs ${bytes(requested)}${committed !== null ? ` beside ${bytes(committed)}` : ""}, `}
      would commit <b>${bytes(would)}</b> against <b>${bytes(bound)}</b>${which ? ` (${words(which)})` : ""}: <span class="bad-text">${bytes(short)} too much</span></p>
    ${(message || help || holders.length > 0) && html`<details><summary>Why</summary>
      ${message && html`<p>${message}</p>`}${help && html`<p>${help}</p>`}
      ${[...holders.map(({ key, bytes: n }) => [engineName(key), n]), ...tenants.map(({ name, bytes: n }) => [name, n])].map(([name, n]) => html`<p class="muted">${name} holds ${bytes(n)}</p>`)}
    </details>`}
  </li>`;
}
