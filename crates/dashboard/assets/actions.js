// What an operator may do with an engine, and what is asked before work would end. Pure.
import { bytes, count, engineName } from "./format.js";

const BUILDING = ["validating", "waits-for-room", "waits-for-slot", "starting"];
const SERVING = ["ready", "suspect"];

// The buttons of an engine, in order. `hidden` are actions that this daemon does not know.
export function actionsOf(engine, hidden) {
  const { phase } = engine;
  const actions = [];
  // What is drained serves again once it is loaded, also while it still ends what it serves.
  if (phase === "idle" || phase === "unloaded" || engine.drained) actions.push("load");
  if (SERVING.includes(phase)) actions.push("unload", ...(engine.drained ? [] : ["drain"]), "restart");
  if (BUILDING.includes(phase)) actions.push("unload");
  if (engine.trouble) actions.push("reset");
  return actions.filter((action) => !hidden.includes(action));
}

// Whether there is a log and a past of it.
export function hasRun({ lastExit, spawn }) {
  return Boolean(spawn || lastExit);
}

// How many requests an engine serves or holds back.
export function workOf(engine) {
  return (engine.leases?.length ?? 0) + (engine.queue ?? 0);
}

// What is asked before an engine is unloaded, restarted or drained; nothing when no work would end.
export function question(action, engine) {
  const name = engineName(engine.key);
  const n = workOf(engine);
  if (action === "drain" && engine.queue > 0) {
    return {
      title: `Drain ${name}?`,
      text: `${count(engine.queue, "request")} waiting for ${name} would be refused; ${count(engine.leases.length, "request")} running would be served to the end.`,
      answers: [{ label: `Drain ${name}`, value: "drain", tone: "bad" }],
    };
  }
  if (n === 0 || (action !== "unload" && action !== "restart")) return null;
  const done = action === "unload" ? "Unload when they are done" : "Restart when they are done";
  return {
    title: `${action === "unload" ? "Unload" : "Restart"} ${name}?`,
    text: `${name} has ${count(n, "request")}: ${engine.leases.length} running, ${engine.queue} waiting.`,
    answers: [
      { label: done, value: "drain", tone: "main" },
      { label: "End them now", value: "force", tone: "bad" },
    ],
  };
}

// What is asked before a load, from the daemon's plan for it; nothing when nobody has to go.
export function loadQuestion(model, outlook) {
  if (!["evicts", "drains"].includes(outlook.outcome) || outlook.victims.length === 0) return null;
  const victims = outlook.victims.map(engineName).join(", ");
  const how = outlook.outcome === "drains" ? "is stopped when its requests are done" : "is stopped";
  const size = outlook.claim?.totalBytes;
  return {
    title: `Load ${model}?`,
    text: `There is no room${size ? ` for its ${bytes(size)}` : ""} beside all that is loaded. To make some, ${victims} ${how}.`,
    answers: [{ label: `Load ${model}`, value: "load", tone: "main" }],
  };
}

// Whether an answer means that the daemon does not know this action at all, rather than this engine.
export function isUnknownAction(status, message) {
  return status === 501 || status === 405 || (status === 404 && message.includes("/api/motorpool/"));
}
