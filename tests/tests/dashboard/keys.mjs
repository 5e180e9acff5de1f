// A key is asked for, shown in a header only, and kept for this tab alone.
import assert from "node:assert/strict";
import { look, part, pool, visible } from "./browser.mjs";

const urls = [];

async function enter(page, key) {
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Unlock" }).click();
}

async function aLockedServerAsksForOne(page) {
  page.on("request", (request) => urls.push(request.url()));
  await visible(page.getByRole("heading", { name: "This server needs a key" }));
  assert.equal(await page.getByText("not one of this server's").count(), 0, "nothing was wrong yet");
}

async function aWrongOneIsTold(page) {
  await enter(page, `mp_${"0".repeat(64)}`);
  await visible(page.getByRole("alert").getByText("not one of this server's"));
}

async function aGoodOneOpens(page) {
  await enter(page, pool.whole);
  await visible(page.getByText("Live", { exact: true }));
  await page.getByRole("button", { name: "Load m" }).click();
  await visible(part(page, "Events").getByText(/ready within/));
}

async function itStaysInThisTab(page, context) {
  await page.reload();
  await visible(page.getByText("Live", { exact: true }));
  const kept = await page.evaluate(() => ({ session: JSON.stringify(sessionStorage), local: JSON.stringify(localStorage), cookie: document.cookie }));
  assert.ok(kept.session.includes(pool.whole) && !kept.local.includes("mp_") && kept.cookie === "", "in session storage only");
  assert.ok(urls.length > 10 && urls.every((url) => !url.includes("mp_")), "in no address");
  const other = await context.newPage();
  await other.goto(pool.url);
  await visible(other.getByRole("heading", { name: "This server needs a key" }));
  await other.close();
}

async function itIsForgottenWhenAsked(page) {
  await page.getByRole("button", { name: "Forget key" }).click();
  await visible(page.getByRole("heading", { name: "This server needs a key" }));
}

async function oneForModelsAloneMayChat(page) {
  await enter(page, pool.narrow);
  await visible(page.getByRole("heading", { name: "The pool is not shown here" }));
  await page.getByRole("main").getByRole("link", { name: "Chat" }).click();
  await page.getByLabel("Model").selectOption("m");
  await page.getByLabel("Message").fill("hello");
  await page.getByLabel("Message").press("Enter");
  await visible(page.getByText(/tokens, first after/));
}

await look([aLockedServerAsksForOne, aWrongOneIsTold, aGoodOneOpens, itStaysInThisTab, itIsForgottenWhenAsked, oneForModelsAloneMayChat],
  { expected: ["401", "403"] });
