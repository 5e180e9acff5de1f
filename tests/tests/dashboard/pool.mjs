// What happens in the pool is seen, and what the buttons say is done.
import assert from "node:assert/strict";
import { chat, engine, gone, look, open, part, pool, until, visible } from "./browser.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });
const dialog = (page) => page.getByRole("dialog");
const view = (page, name) => page.getByRole("navigation").getByRole("link", { name, exact: true }).click();

async function loadsFromItselfAlone(page) {
  await visible(page.getByText("Live", { exact: true }));
  for (const name of ["Memory", "Engines", "Waiting for room", "Denials", "Events"]) await visible(part(page, name));
  const answer = await page.request.get(pool.url, { headers: { accept: "text/html" } });
  const policy = answer.headers()["content-security-policy"];
  assert.ok(policy.startsWith("default-src 'none'; script-src 'self'") && !policy.includes("unsafe"), policy);
}

async function isUsableByEars(page) {
  const names = await page.evaluate(() => {
    const labelled = (one) => one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.[0]?.textContent.trim();
    const nameless = [...document.querySelectorAll("button, a, input, select, textarea")].filter((one) => !labelled(one));
    const landmarks = ["header", "nav", "main", "footer"].filter((name) => !document.querySelector(name));
    const live = [...document.querySelectorAll("[aria-live], [role=status], [role=alert]")].filter((one) => one.textContent.trim());
    return { nameless: nameless.map((one) => one.outerHTML), landmarks, h1: document.querySelectorAll("h1").length, live: live.length };
  });
  assert.deepEqual(names, { nameless: [], landmarks: [], h1: 1, live: 0 });
}

async function loadShowsItsProgress(page) {
  await button(page, "Load steady").click();
  const bar = engine(page, "steady").getByRole("progressbar");
  for (const [n, file] of pool.steps.entries()) {
    if (n > 0) await until(page, (least) => document.querySelector("progress")?.value >= least, n * 250);
    if (n === 2) assert.match(await engine(page, "steady").innerText(), /starting\s+[5-9]\d %/);
    open(file);
  }
  await visible(engine(page, "steady").getByText("ready", { exact: true }));
  await gone(bar);
  await visible(page.getByRole("status").filter({ hasText: "steady is ready" }));
  await visible(part(page, "Events").getByText(/ready within/));
  await visible(part(page, "Memory").getByText("600 MiB reserved", { exact: false }));
}

async function logsFollow(page) {
  await page.getByRole("link", { name: "Logs of steady" }).click();
  await visible(page.getByRole("log").getByText("a line that only this engine prints"));
  await view(page, "Pool");
}

// Room is made for it, after a question.
async function loadThatNeedsRoomAsks(page) {
  await button(page, "Load slow").click();
  await visible(dialog(page).getByText(/steady is stopped/));
  await button(page, "Cancel").click();
  await gone(dialog(page));
  await visible(engine(page, "steady").getByText("ready", { exact: true }));
  await button(page, "Load slow").click();
  await dialog(page).getByRole("button", { name: "Load slow" }).click();
  await visible(engine(page, "slow").getByText("ready", { exact: true }));
  await visible(button(page, "Load steady"));
}

let held, waits;

async function leasesAreSeenAsTheyCome(page) {
  held = chat("slow");
  await visible(engine(page, "slow").getByText("1 of 2 slots"));
  await engine(page, "slow").getByText("Details").click();
  await visible(engine(page, "slow").getByText(/req_[0-9a-f]+ interactive/));
}

async function whoWaitsIsSeenAndForWhom(page) {
  waits = chat("steady");
  const waiting = part(page, "Waiting for room");
  await visible(waiting.getByText("needs 600 MiB", { exact: false }));
  await visible(waiting.getByText("until slow has given its room back"));
  await visible(engine(page, "slow").getByText("draining"));
  waits.leave();
  await visible(waiting.getByText("Nothing waits."));
}

async function unloadOfABusyEngineAsks(page) {
  const unload = button(page, "Unload slow");
  await unload.focus();
  await page.keyboard.press("Enter");
  await visible(dialog(page).getByText("slow has 1 request: 1 running, 0 waiting."));
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel", "the least harm has the focus");
  await page.keyboard.press("Escape");
  await gone(dialog(page));
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Unload slow");
  await visible(engine(page, "slow").getByText("1 of 2 slots"));
  await unload.click();
  await button(page, "End them now").click();
  await visible(button(page, "Load slow"));
  assert.match(await held.ended, /"error"|TypeError/, "the stream was ended in words");
}

async function denialsCarryTheirProof(page) {
  const told = await chat("big").ended;
  assert.match(told, /capacity_denied/);
  const denials = part(page, "Denials");
  await visible(denials.getByText("big", { exact: true }));
  await visible(denials.getByText(/needs 100 GiB.* would commit 100 GiB against 1\.0 GiB/));
  await visible(denials.getByText("99.0 GiB too much"));
}

async function chatStreamsAndStops(page) {
  await view(page, "Chat");
  await page.getByLabel("Model").selectOption("slow");
  const message = page.getByLabel("Message");
  await message.fill("Tell me something.");
  await message.press("Enter");
  const reply = page.getByRole("article", { name: "Model" });
  await until(page, () => document.querySelectorAll(".message.assistant p")[0]?.textContent.length > 3);
  await button(page, "Stop").click();
  await visible(reply.getByText("Stopped."));
  open(pool.pause);
  await message.fill("And now all of it.");
  await button(page, "Send").click();
  await visible(reply.getByText(/tokens, first after/));
  await button(page, "Clear").click();
  await gone(reply);
}

const ROWS = [0, 1, 2].flatMap((n) => ["a", "b"].map((model) => ({
  from: `2026-01-01T0${n}:00:00Z`, model, requests: 4 + n, errors: n, prompt: 900 * n, cached: 10, generated: 1500 * (n + 1),
})));

const USAGE = "**/api/motorpool/v1/usage?*";

const isPainted = () => {
  const canvas = document.querySelector(".plot canvas");
  return canvas && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0);
};

async function usageIsDrawn(page) {
  let rows = null;
  await page.route(USAGE, (route) => {
    assert.match(route.request().url(), /by=(hour&since=(24|168)h|day&since=720h)$/);
    return rows ? route.fulfill({ json: { rows } }) : route.fulfill({ status: 404, json: { error: { message: "nothing there" } } });
  });
  await view(page, "Usage");
  await visible(page.getByText("No history: this daemon keeps none."));
  rows = ROWS;
  await page.getByLabel("Time").selectOption("720h");
  await visible(page.getByRole("row", { name: /^b 15 3/ }));
  await until(page, isPainted);
  await page.getByLabel("Figure").selectOption("requests");
  await until(page, isPainted);
  await page.unroute(USAGE);
}

async function fitsAPhone(page) {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const name of ["Pool", "Usage", "Chat", "Events", "Logs"]) {
    await view(page, name);
    await visible(page.locator("main h2"));
    const { wide, over } = await page.evaluate(() => ({
      wide: document.scrollingElement.scrollWidth - innerWidth,
      over: [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide, .bar, pre, dd, .unseen")).map((one) => one.outerHTML.slice(0, 120)),
    }));
    assert.deepEqual([wide, over], [0, []], name);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

// From the top of the page to a loaded engine, without a mouse.
async function keyboardIsEnough(page) {
  await page.goto(pool.url);
  await visible(button(page, "Unload slow"));
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  const name = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? "");
  for (let n = 0; (await name()) !== "Unload slow"; n++) {
    assert.ok(n < 60, "no way to the button");
    await page.keyboard.press("Tab");
  }
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, "solid", "the focus is seen");
  await page.keyboard.press("Enter");
  await visible(button(page, "Load slow"));
}

// Parts of light in a colour, and how far apart two are, by WCAG.
const CONTRAST = () => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((n) => n / 255).map((n) => (n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = getComputedStyle(document.querySelector(".card")).backgroundColor;
  const of = (selector) => {
    const [a, b] = [light(getComputedStyle(document.querySelector(selector)).color), light(ground)].sort((a, b) => b - a);
    return (a + 0.05) / (b + 0.05);
  };
  return { isDark: light(ground) < 0.2, text: of("body"), muted: of(".muted") };
};

async function isReadableInDarkAndLight(page) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    const { isDark, text, muted } = await page.evaluate(CONTRAST);
    assert.equal(isDark, colorScheme === "dark");
    assert.ok(text >= 7 && muted >= 4.5, `${colorScheme}: text ${text}, muted ${muted}`);
  }
  await button(page, "Theme: auto").click();
  await button(page, "Theme: light").click();
  await visible(button(page, "Theme: dark"));
  assert.equal((await page.evaluate(CONTRAST)).isDark, true, "the choice goes before the system's");
  await page.reload();
  await visible(button(page, "Theme: dark"));
  assert.equal((await page.evaluate(CONTRAST)).isDark, true, "it is kept");
}

const statusOf = async (page, model) => {
  const status = await (await page.request.get(`${pool.url}/api/motorpool/v1/status`)).json();
  return status.engines.find((one) => one.model === model);
};

async function restartGivesAnotherProcess(page) {
  await button(page, "Load slow").click();
  await visible(engine(page, "slow").getByText("ready", { exact: true }));
  const { pid } = await statusOf(page, "slow");
  await button(page, "Restart slow").click();
  await visible(page.getByRole("status").filter({ hasText: "slow is ready" }));
  let now = await statusOf(page, "slow");
  while (now.pid === pid || now.phase !== "ready") now = await statusOf(page, "slow");
  assert.ok(now.pid > 0, "another one serves");
  await engine(page, "slow").getByText("Details").click();
  await visible(engine(page, "slow").getByText(`process ${now.pid}`, { exact: false }));
}

async function drainTakesItOutUntilItIsLoaded(page) {
  await button(page, "Drain slow").click();
  await visible(engine(page, "slow").getByText("drained", { exact: true }));
  assert.match(await chat("slow").ended, /"drained"/, "nobody is served");
  await button(page, "Load slow").click();
  await visible(engine(page, "slow").getByText("ready", { exact: true }));
  assert.match(await chat("slow").ended, /\[DONE\]/, "it serves again");
}

async function resetForgetsAFailedStart(page) {
  assert.match(await chat("broken").ended, /engine_start_failed/);
  await visible(engine(page, "broken").getByText("failed", { exact: true }));
  await button(page, "Reset broken").click();
  await gone(button(page, "Reset broken"));
  assert.equal((await statusOf(page, "broken")).trouble, null, "it is tried again");
  await visible(button(page, "Load broken"));
}

// What was asked above, as this daemon counted it.
async function usageOfThisDaemonIsDrawn(page) {
  const rows = async () => {
    const told = await (await page.request.get(`${pool.url}/api/motorpool/v1/usage?by=hour&since=24h`)).json();
    return told.rows.filter(({ model, requests }) => model === "slow" && requests > 0);
  };
  while ((await rows()).length === 0) await page.evaluate(() => new Promise(requestAnimationFrame));
  await view(page, "Usage");
  await visible(page.getByRole("row", { name: /^slow [1-9]/ }));
  await until(page, isPainted);
  await view(page, "Pool");
}

// A daemon that does not know an action has no button for it.
async function unknownActionsAreHidden(page) {
  await page.route("**/engines/*/drain", (route) => route.fulfill({ status: 501, json: { error: { message: "not here" } } }));
  await button(page, "Drain slow").click();
  await gone(button(page, "Drain slow"));
  await visible(button(page, "Restart slow"));
}

// Text of somebody else's never runs, and this would have been seen: what the other claims rely on.
async function aBrokenRuleIsNoticed(page, _, wrong) {
  const hasRun = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "globalThis.ran = true";
    document.head.append(script);
    return globalThis.ran === true;
  });
  await page.evaluate(() => fetch("http://127.0.0.1:9/").catch(() => null));
  assert.equal(hasRun, false, "an inline script ran");
  for (const what of ["policy: script-src-elem inline", "policy: connect-src http://127.0.0.1:9/", "console: Executing inline", "console: Connecting to"]) {
    const is = (one) => one.startsWith(what);
    for (let n = 0; n < 300 && !wrong.some(is); n++) await page.evaluate(() => new Promise(requestAnimationFrame));
    assert.ok(wrong.some(is), `${what} is not noticed: ${wrong}`);
    wrong.splice(wrong.findIndex(is), 1);
  }
  const rest = wrong.findIndex((one) => one.includes("127.0.0.1:9/"));
  if (rest >= 0) wrong.splice(rest, 1);
}

await look([
  loadsFromItselfAlone, isUsableByEars, loadShowsItsProgress, logsFollow, loadThatNeedsRoomAsks, leasesAreSeenAsTheyCome,
  whoWaitsIsSeenAndForWhom, unloadOfABusyEngineAsks, denialsCarryTheirProof, chatStreamsAndStops, usageIsDrawn, fitsAPhone,
  keyboardIsEnough, resetForgetsAFailedStart, restartGivesAnotherProcess, drainTakesItOutUntilItIsLoaded,
  usageOfThisDaemonIsDrawn, isReadableInDarkAndLight, unknownActionsAreHidden, aBrokenRuleIsNoticed,
], { expected: ["/usage", "/drain"] });
