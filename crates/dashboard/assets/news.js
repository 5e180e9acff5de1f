// What an event says, in a sentence, and how loud it is. Pure.
import { bytes, count, duration, engineName, poolName, words } from "./format.js";

const LOUD = {
  "capacity-denied": "bad", "context-denied": "bad", "start-failed": "bad", "breaker-opened": "bad", stuck: "bad",
  "device-lost": "bad", quarantined: "bad", overflow: "warn", "cpu-fallback": "warn", pressure: "warn",
  suspected: "warn", "gpu-paused": "warn", deferred: "warn", "reading-missing": "warn", "drain-given-up": "warn",
  "context-clamped": "warn", missed: "warn", closing: "warn", ready: "good", recovered: "good", "device-back": "good",
  "overflow-cured": "good", "pressure-over": "good",
};

// `bad`, `warn`, `good` or `plain`.
export function tone(event) {
  if (event.event === "external-notice") return { error: "bad", warning: "warn" }[event.level] ?? "plain";
  if (event.event === "exited") return event.class && event.reason === "crash" ? "bad" : "plain";
  return LOUD[event.event] ?? "plain";
}

// Whether it belongs among the few that the pool's view shows: small corrections come with every look at an engine.
export function matters(event) {
  return event.event !== "corrected" || Math.abs(event.toBytes - event.fromBytes) * 100 > event.toBytes;
}

const SENTENCES = {
  reserved: (e) => `${bytes(e.bytes)} reserved`,
  ready: (e) => `ready within ${duration(e.withinMs)}`,
  corrected: (e) => corrected(e.fromBytes, e.toBytes),
  overflow: (e) => `over the bound by ${bytes(e.bytes)}`,
  "overflow-cured": () => "within the bound again",
  "reading-missing": (e) => `${poolName(e.device)} cannot be read`,
  "device-lost": (e) => `${e.device} is lost`,
  "device-back": (e) => `${e.device} is back`,
  "cpu-fallback": (e) => `computes on the processor; ${bytes(e.plannedBytes)} were planned for devices`,
  pressure: (e) => `memory runs low on ${poolName(e.device)}: ${bytes(e.freeBytes)} free`,
  "pressure-over": (e) => `memory of ${poolName(e.device)} does not run low any more`,
  stopping: (e) => `stopping: ${words(e.reason)}`,
  exited: (e) => `exited: ${words(e.reason)}${e.class ? `, ${words(e.class)}` : ""}${ending(e)}`,
  released: () => "its memory is back",
  stuck: () => "cannot be killed and stays charged",
  "drain-began": (e) => `drains: ${count(e.holders, "request")} to finish`,
  "drain-given-up": () => "drain given up",
  deferred: (e) => `put off: ${e.why}`,
  "gpu-paused": (e) => `refused: ${e.why}`,
  "start-failed": (e) => `failed to start: ${words(e.class)}`,
  "breaker-opened": (e) => `failed too often (${words(e.class)}); nothing is started for ${duration(e.withinMs)}`,
  quarantined: (e) => `${e.program} is of no use here`,
  suspected: (e) => `may serve no more: ${e.why}`,
  recovered: () => "serves again",
  reset: (e) => `failures of ${e.model ?? "all models"} are forgotten`,
  "context-clamped": (e) => `context ${e.contextPerSlot} instead of ${e.wanted}`,
  "context-grown": (e) => `context ${e.contextPerSlot}; ${e.from} would be enough`,
  "context-denied": (e) => `denied: a context of ${e.asked} does not fit, ${e.fits} would`,
  "capacity-denied": (e) =>
    `denied: needs ${bytes(e.requestedBytes)}, would commit ${bytes(e.wouldCommitBytes)} against ${bytes(e.boundBytes)}`,
  "external-notice": (e) => `${e.target}: ${e.message}`,
  "external-changed": (e) => `${e.target}: ${e.change} ${e.model}`,
  closing: () => "no new work is taken",
  missed: (e) => `${count(e.missed, "event")} were missed`,
};

function corrected(from, to) {
  if (from === to) return `corrected: other parts hold the same ${bytes(to)}`;
  return `corrected by ${to > from ? "+" : "−"}${bytes(Math.abs(to - from))} to ${bytes(to)}`;
}

function ending({ code, signal }) {
  if (signal !== null && signal !== undefined) return ` (signal ${signal})`;
  return code ? ` (code ${code})` : "";
}

// Who and what: `{ who: "m", text: "ready within 3 s" }`.
export function sentence(event) {
  const say = SENTENCES[event.event];
  const text = say ? say(event) : words(event.event);
  return { who: event.key ? engineName(event.key) : "", text };
}
