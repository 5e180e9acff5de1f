// The pure modules of the page, run by `node --test`. Names are sentences; each fails when what it says does not hold.
import assert from "node:assert/strict";
import test from "node:test";

const of = (name) => import(new URL(`../assets/${name}.js`, import.meta.url));
const { actionsOf, isUnknownAction, loadQuestion, question } = await of("actions");
const { denials } = await of("denials");
const { bytes, count, duration, engineName, number } = await of("format");
const { backoff, inVain, momentOf, runOf, sparkline, spoken, stacked, totals, withEvent, withSamples } = await of("history");
const { segments, sums } = await of("memory");
const { matters, sentence, tone } = await of("news");
const { reader } = await of("sse");

const GIB = 2 ** 30;
const parts = (devices = {}, privateBytes = null, filesBytes = null) => ({ devices, privateBytes, filesBytes });
const engine = (more) => ({ key: "llama-server:m:0", model: "m", phase: "ready", leases: [], queue: 0, trouble: null, ...more });

test("values are written for people", () => {
  assert.deepEqual([0, 1, 1023, 1024, 1.5 * GIB, 512 * 2 ** 20, 2 ** 40, null].map(bytes),
    ["0", "1 B", "1023 B", "1.0 KiB", "1.5 GiB", "512 MiB", "1.0 TiB", "–"]);
  assert.deepEqual([0, 999, 1500, 59_000, 130_000, 7_300_000, 1e9, undefined].map(duration),
    ["0 ms", "999 ms", "1.5 s", "59 s", "2 min", "2 h", "12 d", "–"]);
  assert.deepEqual([0, 7.25, 42.4, 1234, 56_789, 2.5e6].map(number), ["0", "7.3", "42", "1.2 k", "57 k", "2.5 M"]);
  assert.deepEqual([count(1, "request"), count(2, "request")], ["1 request", "2 requests"]);
});

test("a key is shown without what goes without saying", () => {
  assert.deepEqual(["llama-server:m:0", "llama-server:org/m:q4:3", "nonsense"].map(engineName), ["m", "org/m:q4 #3", "nonsense"]);
});

test("a stream is read wherever it is cut", () => {
  const text = ": hello\n\nid: 9-7\nevent: ready\ndata: {\"a\":1}\n\ndata: x\ndata: y\r\n\r\ndata: rest";
  const whole = [{ id: "9-7", event: "ready", data: "{\"a\":1}" }, { id: null, event: "message", data: "x\ny" }];
  for (let size = 1; size <= text.length; size++) {
    const read = reader();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...read(text.slice(at, at + size)));
    assert.deepEqual(events, whole, `in pieces of ${size}`);
  }
});

test("a bar's segments add up to the pool and say where each figure comes from", () => {
  const memory = (from, reserved, measured) => ({ from, reserved, measured });
  const engines = [
    engine({ key: "a", model: "a", memory: memory("estimated", parts({ g: 2 * GIB }), parts({ g: 2 * GIB })) }),
    engine({ key: "b", model: "b", memory: memory("learned", parts({ g: GIB }), parts()) }),
    engine({ key: "c", model: "c", memory: memory("file-size", parts({ g: GIB }), parts()) }),
    engine({ key: "d", model: "d", memory: null }),
  ];
  const pool = { device: "g", totalBytes: 10 * GIB, committedBytes: 4 * GIB, foreignBytes: GIB, reserveBytes: GIB / 2 };
  const drawn = segments(pool, engines);
  assert.deepEqual(drawn.map(({ kind }) => kind), ["measured", "learned", "declared", "foreign", "free", "reserve"]);
  assert.equal(drawn.reduce((sum, part) => sum + part.bytes, 0), 10 * GIB);
  assert.equal(sums(drawn).free, 4.5 * GIB);
});

test("replicas share their files, and the ledger's sum is right where figures differ", () => {
  const memory = { from: "declared", reserved: parts({}, GIB, 3 * GIB), measured: parts() };
  const twins = [0, 1].map((n) => engine({ key: `llama-server:m:${n}`, memory }));
  const pool = { device: null, totalBytes: 16 * GIB, committedBytes: 5 * GIB, foreignBytes: null, reserveBytes: 0 };
  assert.deepEqual(segments(pool, twins).map((part) => part.bytes / GIB), [4, 1, 11]);
  assert.deepEqual(segments({ ...pool, committedBytes: 6 * GIB }, twins).map((part) => part.bytes / GIB), [4, 1, 1, 10]);
  assert.deepEqual(segments({ ...pool, committedBytes: 2.5 * GIB }, twins).map((part) => part.bytes / GIB), [2, 0.5, 13.5]);
});

test("a pool that others fill has no room for a reserve, and nothing negative", () => {
  const pool = { device: "g", totalBytes: 4 * GIB, committedBytes: 2 * GIB, foreignBytes: 3 * GIB, reserveBytes: GIB };
  assert.ok(segments(pool, []).every((part) => part.bytes > 0 && part.kind !== "reserve" && part.kind !== "free"));
});

test("a question is asked only where work would end", () => {
  const idle = engine({});
  const busy = engine({ leases: [{}, {}], queue: 1 });
  assert.deepEqual(["unload", "restart", "drain", "reset"].map((action) => question(action, idle)), [null, null, null, null]);
  assert.deepEqual(["reset", "load"].map((action) => question(action, busy)), [null, null]);
  assert.equal(question("drain", engine({ leases: [{}, {}] })), null, "what it serves it serves to the end");
  assert.match(question("drain", busy).text, /^1 request waiting for m would be refused; 2 requests running/);
  assert.deepEqual(question("drain", busy).answers.map(({ value }) => value), ["drain"]);
  assert.deepEqual(question("unload", busy).answers.map(({ value }) => value), ["drain", "force"]);
  assert.match(question("unload", busy).text, /3 requests: 2 running, 1 waiting/);
  assert.deepEqual(question("restart", busy).answers.map(({ value }) => value), ["drain", "force"]);
  assert.match(question("restart", busy).title, /^Restart m\?$/);
});

test("a load asks when others have to go for it", () => {
  const outlook = (outcome, victims) => ({ outcome, victims, claim: { totalBytes: GIB } });
  assert.equal(loadQuestion("m", outlook("fits", [])), null);
  assert.equal(loadQuestion("m", outlook("denied", [])), null);
  assert.match(loadQuestion("m", outlook("drains", ["llama-server:b:0"])).text, /1\.0 GiB.* b is stopped when its requests are done/);
});

test("an engine's buttons are those that make sense in its phase", () => {
  const of = (phase, more = {}) => actionsOf(engine({ phase, ...more }), []);
  assert.deepEqual(of("ready"), ["unload", "drain", "restart"]);
  assert.deepEqual(of("starting"), ["unload"]);
  assert.deepEqual(of("idle", { trouble: {} }), ["load", "reset"]);
  assert.deepEqual(of("stopping"), []);
  assert.deepEqual([of("idle", { drained: true }), of("ready", { drained: true })], [["load"], ["load", "unload", "restart"]]);
  assert.deepEqual(actionsOf(engine({}), ["drain"]), ["unload", "restart"]);
  assert.ok(isUnknownAction(404, "nothing at /api/motorpool/v1/engines/x/drain") && isUnknownAction(501, ""));
  assert.ok(!isUnknownAction(404, "engine x; no engine of that name has run") && !isUnknownAction(409, ""));
});

test("events are kept once, the last ones, across runs of the daemon", () => {
  let events = [];
  for (const id of ["1-1", "1-2", "1-2", "2-1"]) events = withEvent(events, { id });
  assert.deepEqual(events.map(({ id }) => id), ["1-1", "1-2", "2-1"]);
  for (let n = 0; n < 1000; n++) events = withEvent(events, { id: `3-${n}` });
  assert.deepEqual([events.length, events.at(-1).id, runOf("3-9"), runOf(null)], [400, "3-999", "3", null]);
  assert.equal(momentOf(2_000, { at: 1_000_000, atMs: 5_000 }), 997_000);
});

test("throughput is what passed between two looks at one child", () => {
  const status = (spawn, frames) => ({ engines: [{ key: "m", spawn, frames }, { key: "idle", spawn: null, frames: null }] });
  let samples = withSamples({}, status(1, 100), 1000);
  samples = withSamples(samples, status(1, 150), 2000);
  assert.deepEqual([samples.m.rates, Object.keys(samples)], [[50], ["m"]]);
  for (const frames of [7, 9000]) assert.deepEqual(withSamples(samples, status(2, frames), 3000).m.rates, [], "another child counts anew");
  for (let n = 0; n < 200; n++) samples = withSamples(samples, status(1, 150 + n), 3000 + n);
  assert.equal(samples.m.rates.length, 90);
});

test("a sparkline stays in its box and ends at its right", () => {
  assert.equal(sparkline([1], { width: 90, height: 20 }), "");
  const path = sparkline([0, 5, 10], { width: 89, height: 20 });
  assert.equal(path, "M87.0 19.0L88.0 10.0L89.0 1.0");
});

test("a daemon that is gone is asked less and less often, and for ever", () => {
  assert.deepEqual([0, 1, 2, 5, 50, 5000].map(backoff), [500, 1000, 2000, 10_000, 10_000, 10_000]);
});

test("what held for a while was not in vain", () => {
  assert.deepEqual([inVain(4, 0), inVain(4, 4999), inVain(4, 5000), inVain(4, -Infinity)], [4, 4, 0, 4]);
});

test("only what ends a wait is said aloud", () => {
  const status = (more) => ({ engines: [engine(more)] });
  assert.equal(spoken(null, status({})), "", "not what was there before the page");
  assert.equal(spoken(status({ phase: "starting" }), status({})), "m is ready");
  assert.equal(spoken(status({}), status({})), "");
  assert.equal(spoken(status({}), status({ phase: "idle" })), "m is unloaded");
  assert.equal(spoken(status({ phase: "starting" }), status({ phase: "idle", trouble: { message: "no such file" } })), "m failed: no such file");
});

test("usage is stacked by model and summed", () => {
  const row = (from, model, generated) => ({ from, model, generated, requests: 1, errors: 0, prompt: null, cached: 0 });
  const rows = [row("2026-01-01T01:00:00Z", "b", 5), row("2026-01-01T00:00:00Z", "a", 1), row("2026-01-01T01:00:00Z", "a", 2)];
  const { models, lines, plain, times } = stacked(rows, "generated");
  assert.deepEqual([models, plain, lines, times[1] - times[0]], [["a", "b"], [[1, 2], [0, 5]], [[1, 2], [1, 7]], 3600]);
  assert.deepEqual(totals(rows).map(({ model, generated, requests }) => [model, generated, requests]), [["b", 5, 1], ["a", 3, 2]]);
});

test("every denial carries its arithmetic, from events or from the daemon's list", () => {
  const event = { event: "capacity-denied", key: "k", requestedBytes: 3, wouldCommitBytes: 5, boundBytes: 4, at: 1 };
  const [told] = denials(null, [{ event: "ready" }, event]);
  assert.deepEqual([told.committed, told.requested, told.would, told.bound, told.short], [null, 3, 5, 4, 1]);
  const row = { at: "2026-01-01T00:00:00Z", key: "k", requested: { totalBytes: 3 }, wouldCommitBytes: 5, boundBytes: 4, committedBytes: 2, help: "h" };
  const [listed] = denials([row], [event]);
  assert.deepEqual([listed.short, listed.help, listed.committed, listed.at], [1, "h", 2, Date.parse(row.at)]);
  assert.equal(denials([{ ...row, committedBytes: 9 }], [])[0].committed, null, "no sum that is none");
  assert.deepEqual(denials(null, [event, { ...event, at: 2 }]).map(({ at }) => at), [2, 1]);
});

test("a correction says by how much, which figures that are alike would hide", () => {
  const text = (fromBytes, toBytes) => sentence({ event: "corrected", key: "k", fromBytes, toBytes }).text;
  assert.deepEqual([text(GIB, GIB + 1024), text(GIB, GIB / 2), text(GIB, GIB)],
    ["corrected by +1.0 KiB to 1.0 GiB", "corrected by −512 MiB to 512 MiB", "corrected: other parts hold the same 1.0 GiB"]);
});

test("small corrections are not among the news", () => {
  const corrected = (toBytes) => ({ event: "corrected", fromBytes: GIB, toBytes });
  assert.deepEqual([corrected(GIB + 1), corrected(GIB * 1.5), corrected(GIB / 2), { event: "ready" }].map(matters), [false, true, true, true]);
});

test("an event is one sentence with the tone of what it means, an unknown one too", () => {
  const denied = { event: "capacity-denied", key: "llama-server:big:0", requestedBytes: 2 * GIB, wouldCommitBytes: 2 * GIB, boundBytes: GIB };
  assert.deepEqual([sentence(denied), tone(denied)],
    [{ who: "big", text: "denied: needs 2.0 GiB, would commit 2.0 GiB against 1.0 GiB" }, "bad"]);
  const exited = { event: "exited", key: "llama-server:m:0", reason: "crash", class: "killed", code: null, signal: 9 };
  assert.deepEqual([sentence(exited).text, tone(exited), tone({ event: "exited", reason: "evicted" })], ["exited: crash, killed (signal 9)", "bad", "plain"]);
  assert.deepEqual([sentence({ event: "some-news" }), tone({ event: "some-news" })], [{ who: "", text: "some news" }, "plain"]);
});
