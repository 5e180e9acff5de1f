// What a pool of memory is made of: one segment for each engine in it, then others' use, what is free, and the reserve.
// Pure: the status in, segments out.

// Where the figure comes from that an engine's bytes in this pool stand on.
const DECLARED = ["declared", "estimated", "file-size"];

export function sourceOf(memory, measured) {
  if (measured) return "measured";
  return DECLARED.includes(memory.from) ? "declared" : "learned";
}

// What one engine holds in the pool of `device`; `null` is system memory. Files are told apart: replicas share them.
function held(engine, device) {
  const { reserved, measured } = engine.memory;
  if (device !== null) {
    return { own: reserved.devices[device] ?? 0, files: 0, measured: measured.devices[device] !== undefined };
  }
  const isMeasured = measured.privateBytes !== null || measured.filesBytes !== null;
  return { own: reserved.privateBytes ?? 0, files: reserved.filesBytes ?? 0, measured: isMeasured };
}

// The segments of a pool, in the order in which they are drawn. Their bytes add up to the pool's.
export function segments(pool, engines) {
  const seen = new Set();
  const parts = [];
  for (const engine of engines.filter((engine) => engine.memory)) {
    const { own, files, measured } = held(engine, pool.device);
    // The ledger counts a file once, whoever maps it.
    const counted = seen.has(engine.model) ? 0 : files;
    if (files > 0) seen.add(engine.model);
    const size = own + counted;
    if (size > 0) parts.push({ kind: sourceOf(engine.memory, measured), key: engine.key, bytes: size });
  }
  fit(parts, pool.committedBytes);
  const foreign = pool.foreignBytes ?? 0;
  const taken = Math.min(pool.totalBytes, pool.committedBytes + foreign);
  const reserve = Math.min(pool.reserveBytes ?? 0, pool.totalBytes - taken);
  const free = Math.max(0, pool.totalBytes - taken - reserve);
  const rest = [
    { kind: "foreign", bytes: foreign },
    { kind: "free", bytes: free },
    { kind: "reserve", bytes: reserve },
  ];
  return [...parts, ...rest].filter((part) => part.bytes > 0);
}

// The ledger's sum is right: what the engines' own figures lack is a segment, what they have too much is taken off.
function fit(parts, committed) {
  const sum = parts.reduce((sum, part) => sum + part.bytes, 0);
  if (sum < committed) parts.push({ kind: "declared", key: null, bytes: committed - sum });
  if (sum > committed) for (const part of parts) part.bytes = (part.bytes * committed) / sum;
}

// Bytes by kind, for the line below the bar.
export function sums(segments) {
  const sums = {};
  for (const { kind, bytes } of segments) sums[kind] = (sums[kind] ?? 0) + bytes;
  return sums;
}

// How each segment is called.
export const KINDS = {
  measured: "measured",
  learned: "learned",
  declared: "declared or estimated",
  foreign: "foreign",
  free: "free",
  reserve: "reserve",
};
