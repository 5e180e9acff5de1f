// A Chromium with an empty profile, and everything that it must not do, counted.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const pool = JSON.parse(process.env.POOL);
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const PATIENCE = 30_000;

// Opens the page and runs each claim on it in order; each is told what went wrong so far. `expected` are errors that a claim means to happen.
export async function look(claims, { expected = [], path = "/", ...options } = {}) {
  const profile = mkdtempSync(join(tmpdir(), "motorpool-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: "/usr/bin/chromium", headless: true, args: FLAGS, viewport: { width: 1280, height: 900 },
    colorScheme: "dark", ...options,
  });
  const wrong = [];
  try {
    context.setDefaultTimeout(PATIENCE);
    const page = context.pages()[0] ?? (await context.newPage());
    await observe(page, wrong, expected);
    await page.goto(pool.url + path);
    for (const claim of claims) {
      const begun = performance.now();
      await claim(page, context, wrong).catch(async (error) => {
        if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `failed-${claim.name}.png`), fullPage: true });
        throw new Error(`${claim.name} does not hold: ${wrong.join("; ")}`, { cause: error });
      });
      console.log(`${claim.name}: ${Math.round(performance.now() - begun)} ms`);
    }
    assert.deepEqual(wrong, []);
    console.log("all of it holds");
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

// Other origins, errors on the console, exceptions, and whatever the policy refused.
async function observe(page, wrong, expected) {
  const isExpected = (text) => expected.some((part) => text.includes(part));
  const add = (text) => isExpected(text) || wrong.push(text);
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== pool.url && protocol !== "data:") wrong.push(`asked ${request.url()}`);
  });
  page.on("console", (message) => message.type() === "error" && add(`console: ${message.text()} ${message.location().url}`));
  page.on("pageerror", (error) => add(`exception: ${error.stack}`));
  await page.exposeFunction("refusedByPolicy", (what) => wrong.push(`policy: ${what}`));
  await page.addInitScript(() =>
    addEventListener("securitypolicyviolation", (event) => globalThis.refusedByPolicy(`${event.violatedDirective} ${event.blockedURI}`)));
}

export const open = (file) => writeFileSync(file, "");

// Once somebody has taken the file away.
export async function taken(file) {
  while (existsSync(file)) await new Promise((go) => setTimeout(go, 20));
}

export const part = (page, name) => page.getByRole("region", { name, exact: true });
export const engine = (page, name) => page.getByRole("listitem", { name, exact: true });
export const visible = (locator) => locator.first().waitFor({ state: "visible" });
export const gone = (locator) => locator.first().waitFor({ state: "detached" });

// Until what the page says of itself is so.
export const until = (page, check, value) => page.waitForFunction(check, value, { polling: 50 });

// Asks a model past the page; the reply is left alone.
export function chat(model, more = {}) {
  const leaving = new AbortController();
  const body = JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "hello" }] });
  const headers = { "content-type": "application/json", ...more };
  const asked = fetch(`${pool.url}/v1/chat/completions`, { method: "POST", headers, body, signal: leaving.signal });
  const ended = asked.then((answer) => answer.text()).catch((error) => `${error}`);
  return { ended, leave: () => leaving.abort() };
}
