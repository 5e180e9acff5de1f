// How values are written for people. Pure.

const STEPS = [
  ["TiB", 2 ** 40],
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
];

// 1.5 GiB, 512 MiB, 0; a dash where nothing is known.
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  const [unit, size] = STEPS.find(([, size]) => n >= size) ?? ["B", 1];
  const value = n / size;
  return `${value >= 100 || size === 1 ? Math.round(value) : value.toFixed(1)} ${unit}`;
}

// 840 ms, 12 s, 3 min, 2 h, 5 d.
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

// A count with its word: 1 request, 3 requests.
export function count(n, word) {
  return `${number(n)} ${word}${n === 1 ? "" : "s"}`;
}

// 950, 12.3 k, 4.5 M.
export function number(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1000) return Number.isInteger(n) ? String(n) : n.toFixed(n < 10 ? 1 : 0);
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)} k`;
  return `${(n / 1e6).toFixed(1)} M`;
}

// The time of day of `at`, in ms since 1970.
export function clock(at) {
  const two = (n) => String(n).padStart(2, "0");
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// An engine's name without what goes without saying: `llama-server:org/m:0` is `org/m`, its second replica `org/m #1`.
export function engineName(key) {
  const [, model, replica] = key.match(/^[^:]*:(.*):(\d+)$/) ?? [null, key, "0"];
  return replica === "0" ? model : `${model} #${replica}`;
}

// A card's or the system memory's name.
export function poolName(device) {
  return device ?? "System memory";
}

// `waits-for-room` for people.
export function words(name) {
  return name.replaceAll("-", " ");
}
