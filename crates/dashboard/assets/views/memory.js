// The pools of memory, each as one bar: what engines hold by where its figure comes from, others' use, the reserve.
import { html } from "../vendor/preact-htm.js";
import { bytes, engineName, poolName } from "../format.js";
import { KINDS, segments, sums } from "../memory.js";
import { Part } from "./parts.js";

export function Memory({ state: { status } }) {
  const pools = status.pool.memory.filter((pool) => pool.totalBytes > 0);
  const bound = status.pool.budgetBytes;
  const more = html`<span class="muted">${bytes(status.pool.committedBytes)} reserved${bound ? ` of a budget of ${bytes(bound)}` : ""}</span>`;
  return html`<${Part} title="Memory" id="memory" more=${more}>
    <ul class="pools">${pools.map((pool) => html`<${Pool} key=${pool.device} pool=${pool} engines=${status.engines} />`)}</ul>
    <ul class="legend" aria-hidden="true">
      ${Object.entries(KINDS).map(([kind, name]) => html`<li><i class="swatch ${kind}"></i>${name}</li>`)}
      <li><i class="swatch now"></i>may be reserved now</li>
    </ul>
  <//>`;
}

function Pool({ pool, engines }) {
  const parts = segments(pool, engines);
  const by = sums(parts);
  const kinds = Object.keys(KINDS).filter((kind) => kind !== "free" && by[kind] > 0);
  return html`<li>
    <p class="pool-head"><strong>${poolName(pool.device)}</strong>
      <span>${bytes(pool.committedBytes)} reserved · ${bytes(by.free ?? 0)} free of ${bytes(pool.totalBytes)}</span></p>
    <div class="bar" aria-hidden="true">
      ${parts.map((part) => html`<span class="segment ${part.kind}" style=${{ flexGrow: part.bytes / pool.totalBytes }}
        title="${part.key ?? KINDS[part.kind]}: ${bytes(part.bytes)}${part.key ? `, ${KINDS[part.kind]}` : ""}">
        ${part.key && part.bytes / pool.totalBytes > 0.12 && html`<b>${engineName(part.key)}</b>`}</span>`)}
      ${pool.shareNowBytes < pool.totalBytes && html`<span class="bound" style=${{ left: `${(100 * pool.shareNowBytes) / pool.totalBytes}%` }}
        title="may be reserved now: ${bytes(pool.shareNowBytes)}"></span>`}
    </div>
    <p class="pool-foot">
      ${kinds.map((kind) => html`<span>${KINDS[kind]} ${bytes(by[kind])}</span>`)}
      ${pool.foreignBytes === null && html`<span>others' use is not read</span>`}
    </p>
  </li>`;
}
