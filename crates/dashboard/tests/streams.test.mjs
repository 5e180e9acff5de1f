// When streams are open and how often they are asked for, in a browser that is played: time and network are a list.
import assert from "node:assert/strict";
import test from "node:test";

const page = Object.assign(new EventTarget(), { hidden: false });
let now = 0;
let asked = [];
let waits = [];
Object.assign(globalThis, { location: { hash: "#/logs/%E0%A4%A" }, document: page, sessionStorage: { getItem: () => null } });
Date.now = () => now;
globalThis.setTimeout = (go, ms) => waits.push({ go, ms });

const STATUS = { engines: [], atMs: 0 };
let open = () => "forever";
// Documents are told at once; a stream ends at once, or stays until it is aborted.
globalThis.fetch = async (path, { signal } = {}) => {
  const name = path.replace("/api/motorpool/v1/", "");
  const isStream = name.startsWith("events") || name.includes("/logs");
  if (signal?.aborted) throw signal.reason;
  if (!isStream) return Response.json(name === "status" ? STATUS : { models: [], denials: [] });
  let stream;
  const body = new ReadableStream({ start: (its) => (stream = its) });
  signal.addEventListener("abort", () => stream.error(signal.reason));
  if (open() === "ends") stream.close();
  asked.push({ name, signal, end: () => stream.close() });
  return new Response(body);
};

const turn = async () => {
  for (let n = 0; n < 20; n++) await new Promise((go) => setImmediate(go));
};
const wake = async () => {
  const due = waits;
  waits = [];
  due.forEach(({ go }) => go());
  await turn();
};
const hide = async (hidden) => {
  page.hidden = hidden;
  page.dispatchEvent(new Event("visibilitychange"));
  await turn();
};

const of = (name) => import(new URL(`../assets/${name}.js`, import.meta.url));
const { read } = await of("api");
const { placeOf, store } = await of("state");
const { live } = await of("live");
const { follow } = await of("views/logs");

test("an address that is no good shows a page all the same", () => {
  assert.deepEqual(store.get().place, { view: "logs", rest: "%E0%A4%A" });
  assert.deepEqual(placeOf("#/logs/a%2Fb"), { view: "logs", rest: "a/b" });
});

test("a question that nobody answers ends, and what is done on a wish takes as long as it takes", async () => {
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = () => AbortSignal.abort(new DOMException("late", "TimeoutError"));
  await assert.rejects(read("status"), { status: 0, message: "the daemon does not answer" });
  assert.deepEqual(await read("status", { method: "POST" }), STATUS);
  AbortSignal.timeout = timeout;
});

test("a hidden page keeps no stream open, and a log that ends is opened again, less and less often", async () => {
  const left = new AbortController();
  const told = [];
  const followed = follow("k", left.signal, { begin: () => told.push("begin"), add: () => {}, fail: (error) => told.push(error) });
  await turn();
  assert.equal(asked.length, 1);
  await hide(true);
  assert.equal(asked[0].signal.aborted, true);
  await wake();
  assert.equal(asked.length, 1, "nothing is asked while nobody looks");
  open = () => "ends";
  await hide(false);
  const pauses = [];
  for (let n = 0; n < 4; n++) {
    pauses.push(...waits.map(({ ms }) => ms));
    await wake();
  }
  assert.deepEqual(pauses, [500, 1000, 2000, 4000]);
  assert.equal(asked.length, 6);
  assert.deepEqual(told, Array(6).fill("begin"), "none of it was a failure");
  left.abort();
  await wake();
  await followed;
  assert.equal(asked.length, 6);
});

test("the page backs off when only its stream fails, and not after one that held", async () => {
  [asked, waits] = [[], []];
  live();
  await turn();
  const pauses = [];
  for (let n = 0; n < 4; n++) {
    pauses.push(store.get().link.until - now);
    await wake();
  }
  assert.deepEqual(pauses, [500, 1000, 2000, 4000]);
  open = () => "forever";
  await wake();
  assert.equal(store.get().link.phase, "live");
  await hide(true);
  assert.deepEqual([asked.at(-1).signal.aborted, store.get().link.phase], [true, "live"], "it is not lost");
  const before = asked.length;
  await wake();
  assert.equal(asked.length, before, "nothing is asked while nobody looks");
  await hide(false);
  assert.equal(asked.length, before + 1);
  now += 60_000;
  asked.at(-1).end();
  await turn();
  assert.equal(store.get().link.until - now, 500);
});
