// What the page remembers between two looks at the daemon: events, throughput. Pure: the old value in, the new one out.

const MOST_EVENTS = 400;
const MOST_SAMPLES = 90;
const HELD = 5000;

// When an event was, in ms since 1970: the daemon counts from its own start.
export function momentOf(atMs, anchor) {
  return anchor.at - (anchor.atMs - atMs);
}

// The events with one more. Those of an earlier run of the daemon stay; one that was told twice does not.
export function withEvent(events, event) {
  if (event.id !== null && events.some((known) => known.id === event.id)) return events;
  return [...events, event].slice(-MOST_EVENTS);
}

// The run of the daemon that an event's id names.
export function runOf(id) {
  return id ? id.split("-")[0] : null;
}

// One more sample for each engine that serves: how many pieces of replies passed in a second since the last one.
export function withSamples(samples, status, at) {
  const next = {};
  for (const { key, spawn, frames } of status.engines) {
    if (frames === null || frames === undefined) continue;
    const before = samples[key];
    const isSame = before && before.spawn === spawn && frames >= before.frames && at > before.at;
    const more = isSame ? [((frames - before.frames) * 1000) / (at - before.at)] : [];
    const rates = before && before.spawn === spawn ? before.rates : [];
    next[key] = { spawn, frames, at, rates: [...rates, ...more].slice(-MOST_SAMPLES) };
  }
  return next;
}

// The points of a sparkline in a box of this size, as an SVG path; the highest of them is at the top.
export function sparkline(rates, { width, height }) {
  if (rates.length < 2) return "";
  const top = Math.max(...rates, 1);
  const step = width / (MOST_SAMPLES - 1);
  const from = width - step * (rates.length - 1);
  const point = (rate, n) => `${(from + n * step).toFixed(1)} ${(height - 1 - (rate / top) * (height - 2)).toFixed(1)}`;
  return `M${rates.map(point).join("L")}`;
}

// How many tries in a row were in vain, once one ends that held for so long, in ms: one that held begins a new row.
export function inVain(n, heldFor) {
  return heldFor < HELD ? n : 0;
}

// How long to wait before the n-th try in a row, in ms.
export function backoff(n) {
  return Math.min(10_000, 500 * 2 ** Math.min(n, 10));
}

// Which of `before` became ready, or failed, or are gone: what is worth saying aloud.
export function spoken(before, after) {
  const phases = new Map((before?.engines ?? []).map((engine) => [engine.key, engine]));
  const said = [];
  for (const engine of before ? after.engines : []) {
    const was = phases.get(engine.key);
    if (engine.phase === "ready" && was?.phase !== "ready") said.push(`${engine.model} is ready`);
    if (engine.trouble && !was?.trouble) said.push(`${engine.model} failed: ${engine.trouble.message}`);
    if (engine.phase === "idle" && was && was.phase !== "idle" && !engine.trouble) {
      said.push(`${engine.model} is unloaded`);
    }
  }
  return said.join(". ");
}

// A request that was refused before its model was known has none.
const modelOf = (row) => row.model ?? "(no model)";

// Rows of usage as what is drawn: times, and one line for each model, stacked; and the sums for the table.
export function stacked(rows, what) {
  const times = [...new Set(rows.map((row) => Date.parse(row.from) / 1000))].sort((a, b) => a - b);
  const models = [...new Set(rows.map(modelOf))].sort();
  const at = new Map(times.map((time, n) => [time, n]));
  const plain = models.map(() => times.map(() => 0));
  for (const row of rows) {
    plain[models.indexOf(modelOf(row))][at.get(Date.parse(row.from) / 1000)] += row[what] ?? 0;
  }
  const below = times.map(() => 0);
  const lines = plain.map((line) => line.map((value, n) => (below[n] += value)));
  return { times, models, plain, lines };
}

// Everything that each model was asked in these rows.
export function totals(rows) {
  const sums = new Map();
  for (const row of rows) {
    const model = modelOf(row);
    const sum = sums.get(model) ?? { model, requests: 0, errors: 0, prompt: 0, cached: 0, generated: 0 };
    for (const name of ["requests", "errors", "prompt", "cached", "generated"]) sum[name] += row[name] ?? 0;
    sums.set(model, sum);
  }
  return [...sums.values()].sort((a, b) => b.generated - a.generated || b.requests - a.requests);
}
