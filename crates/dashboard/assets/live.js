// Keeps what the page knows up to date: the events as they come, the status after each of them and every other second.
//
//   connecting ─► live ─► lost ─► connecting ─► …      a daemon that is gone is asked again, less and less often
//        └─► locked (401) ─ a key ─► connecting
//        └─► narrow (403): this key may only ask models
//
// A page that is hidden hears nothing; once it is seen again it goes on behind the last event that it heard.
import { attention, shown } from "./attention.js";
import { key, pieces, read, Refusal, stream } from "./api.js";
import { backoff, inVain, momentOf, runOf, spoken, withEvent, withSamples } from "./history.js";
import { isDenial } from "./denials.js";
import { reader } from "./sse.js";
import { say, store } from "./state.js";

const LOOK_EVERY = 2000;
// While something loads, its progress is worth a closer look.
const LOOK_OFTEN = 500;
const AFTER_EVENT = 60;
const CHANGES = ["starting", "validating", "waits-for-room", "waits-for-slot", "stopping", "reclaiming"];

let wake = () => {};

// Resolves after `ms`, or as soon as somebody calls `hurry`.
function pause(ms) {
  return new Promise((go) => {
    const timer = setTimeout(go, ms);
    wake = () => {
      clearTimeout(timer);
      go();
    };
  });
}

export function hurry() {
  wake();
}

// For ever.
export async function live() {
  for (let failed = 0; ; ) {
    await shown();
    const gone = attention();
    let since = Infinity;
    try {
      await look();
      since = Date.now();
      store.set({ link: { phase: "live" } });
      if (failed > 0) say("Connected again.", "good");
      await Promise.race([hear(gone.signal), watch(gone.signal)]);
      throw new Refusal(0, "unreachable", "the stream of events ended");
    } catch (error) {
      const isHidden = gone.signal.aborted;
      gone.abort();
      failed = inVain(failed, Date.now() - since);
      if (isHidden || (await isHeld(error))) continue;
      const within = backoff(failed++);
      const why = error.status > 0 ? error.message : null;
      store.set({ link: { phase: "lost", until: Date.now() + within, why } });
      await pause(within);
    }
  }
}

// Waits where only people can help; otherwise it is not held.
async function isHeld(error) {
  if (error.status !== 401 && error.status !== 403) return false;
  const phase = error.status === 401 ? "locked" : "narrow";
  const why = error.status === 401 && !key.get() ? null : error.message;
  store.set({ link: { phase, why } });
  await new Promise((go) => {
    const stop = store.subscribe(({ link }) => {
      if (link.phase !== "connecting") return;
      stop();
      go();
    });
  });
  return true;
}

async function look() {
  const [status, { models }] = await Promise.all([read("status"), read("models")]);
  const at = Date.now();
  store.set((now) => ({
    status,
    models,
    anchor: { at, atMs: status.atMs },
    samples: withSamples(now.samples, status, at),
    spoken: spoken(now.status, status) || now.spoken,
  }));
}

// Looks again and again.
async function watch(signal) {
  while (!signal.aborted) {
    const changes = store.get().status.engines.some((engine) => CHANGES.includes(engine.phase));
    await pause(changes ? LOOK_OFTEN : LOOK_EVERY);
    if (!signal.aborted) await look();
  }
}

// Hears events until their stream ends. Whoever heard one goes on behind it; another run tells all that it has.
async function hear(signal) {
  const { lastId } = store.get();
  const headers = lastId ? { "last-event-id": lastId } : {};
  const answer = await stream(lastId ? "events" : "events?after=0", { headers, signal });
  let listed = await denialsListed();
  const read = reader();
  for await (const piece of pieces(answer)) {
    const events = read(piece).map((event) => ({ ...JSON.parse(event.data), id: event.id }));
    if (events.length === 0) continue;
    events.forEach(heard);
    if (listed && events.some(isDenial)) listed = await denialsListed();
    setTimeout(hurry, AFTER_EVENT);
  }
}

function heard(event) {
  const { anchor, lastId } = store.get();
  const isNewRun = lastId && event.id && runOf(lastId) !== runOf(event.id);
  if (isNewRun) say("The daemon was restarted.", "warn");
  const at = event.atMs === undefined ? Date.now() : momentOf(event.atMs, anchor);
  store.set(({ events }) => ({ events: withEvent(events, { ...event, at }), lastId: event.id ?? lastId }));
}

// Whether the daemon lists its denials; without that the events tell them.
async function denialsListed() {
  const listed = await read("denials").then((told) => told.denials ?? null, () => null);
  store.set({ listed });
  return listed !== null;
}
