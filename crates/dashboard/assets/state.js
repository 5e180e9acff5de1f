// What the page knows at its beginning, and what people can make of it: actions, questions, where they look.
import { engine, key, model, read } from "./api.js";
import { isUnknownAction, loadQuestion, question } from "./actions.js";
import { createStore } from "./store.js";

export const store = createStore({
  // `connecting`, `live`, `lost`, `locked` (a key is needed) or `narrow` (the key may not look into the pool).
  link: { phase: "connecting" },
  status: null,
  anchor: null,
  models: [],
  events: [],
  lastId: null,
  listed: null,
  samples: {},
  // Actions that this daemon does not know.
  hidden: [],
  // What was begun and is not answered yet: `load llama-server:m:0`.
  begun: [],
  dialog: null,
  notice: null,
  spoken: "",
  place: placeOf(location.hash),
  chat: { model: "", messages: [], running: null },
});

// `#/logs/llama-server:m:0` is `{ view: "logs", rest: "llama-server:m:0" }`.
export function placeOf(hash) {
  const [view, ...rest] = hash.replace(/^#\/?/, "").split("/");
  return { view: view || "pool", rest: decoded(rest.join("/")) };
}

// What people write there by hand need not be well formed.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Says something to everybody, until the next thing is said.
export function say(text, tone = "plain") {
  store.set({ notice: { text, tone } });
}

// Asks, and waits for one of the answers; `null`: none of them.
export function put(question) {
  return new Promise((answered) => {
    const answer = (value) => {
      store.set({ dialog: null });
      answered(value);
    };
    store.set({ dialog: { ...question, answer } });
  });
}

// Does what a button says, after a question where work would end.
export async function act(action, entry) {
  const name = `${action} ${entry.key}`;
  if (store.get().begun.includes(name)) return;
  const wish = await wishOf(action, entry);
  if (wish === null) return;
  store.set(({ begun }) => ({ begun: [...begun, name] }));
  try {
    await perform(action, entry, wish);
  } catch (error) {
    refused(action, error);
  } finally {
    store.set(({ begun }) => ({ begun: begun.filter((one) => one !== name) }));
  }
}

function refused(action, error) {
  if (isUnknownAction(error.status, error.message) && (action === "drain" || action === "restart")) {
    store.set(({ hidden }) => ({ hidden: [...hidden, action] }));
    say(`This daemon cannot ${action} an engine.`, "warn");
  } else {
    say(error.message, "bad");
  }
}

// What is wanted, once every question is answered; `null`: nothing.
async function wishOf(action, entry) {
  if (action !== "load") {
    const asked = question(action, entry);
    return asked ? put(asked) : action;
  }
  const plan = await read("plan", { method: "POST", body: { models: [entry.model] } }).catch(() => null);
  const asked = plan && loadQuestion(entry.model, plan.outlooks[0]);
  return asked ? put(asked) : action;
}

async function perform(action, entry, wish) {
  if (action === "load") return entry.phase === "unloaded" ? model(entry.model, "load") : engine(entry.key, "load");
  if (action === "reset") return model(entry.model, "reset");
  if (action === "drain") return engine(entry.key, "drain");
  // Without a question nothing was served: should that be over by now, nothing is ended unasked.
  const unasked = action === "unload" && entry.phase === "ready" ? "idle" : "drain";
  return engine(entry.key, action, { mode: wish === action ? unasked : wish });
}

// Shows a key from now on.
export function unlock(value) {
  // Nothing else fits into a header.
  const isKey = /^[\x21-\x7e]+$/.test(value);
  if (isKey) key.set(value);
  store.set({ link: isKey ? { phase: "connecting" } : { phase: "locked", why: "this is no key: it holds other signs than those of a key" } });
}

export function lock() {
  key.forget();
  location.reload();
}
