// The real engine speaks.
import assert from "node:assert/strict";
import { engine, look, pool, until, visible } from "./browser.mjs";

async function aRealReplyStreams(page) {
  await page.getByLabel("Model").selectOption(pool.model);
  await page.getByLabel("Message").fill("Count from one to five.");
  await page.getByLabel("Message").press("Enter");
  await visible(page.getByText(/\d+ \+ \d+ tokens, first after/));
  const said = await page.locator(".message.assistant p").first().innerText();
  assert.ok(said.length > 3 && said !== "…", said);
}

async function aLongOneIsStopped(page) {
  await page.getByLabel("Message").fill("Tell me a very long story about the sea, with many chapters.");
  await page.getByLabel("Message").press("Enter");
  await until(page, () => [...document.querySelectorAll(".message.assistant")].at(-1)?.textContent.length > 20);
  await page.getByRole("button", { name: "Stop" }).click();
  await visible(page.getByText("Stopped."));
}

async function itsMemoryIsMeasured(page) {
  await page.getByRole("navigation").getByRole("link", { name: "Pool" }).click();
  await visible(engine(page, pool.model).getByText(/measured [\d.]+ [MG]iB/));
  await visible(engine(page, pool.model).getByText(/^0 of \d+ slot/));
}

await look([aRealReplyStreams, aLongOneIsStopped, itsMemoryIsMeasured], { path: "/#/chat" });
