// Plays the scene of the picture, and draws it.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { chat, engine, look, open, part, pool, until, visible } from "./browser.mjs";

const held = [];

async function theSceneIsSet(page) {
  for (const model of ["qwen3-coder-30b", "gemma3-12b"]) {
    await page.getByRole("button", { name: `Load ${model}` }).click();
    await visible(engine(page, model).getByText("ready", { exact: true }));
    await visible(engine(page, model).getByText(/measured/));
  }
  for (const model of ["qwen3-coder-30b", "qwen3-coder-30b", "qwen3-coder-30b", "gemma3-12b"]) held.push(chat(model));
  await chat("llama-3.3-405b").ended;
  await page.getByRole("button", { name: "Load mistral-small-24b" }).click();
  pool.steps.slice(0, 5).forEach(open);
  await visible(engine(page, "mistral-small-24b").getByText("62 %"));
  held.push(chat("gpt-oss-20b"));
  await visible(part(page, "Waiting for room").getByText("gpt-oss-20b"));
}

async function itIsDrawn(page) {
  const isLong = () => [...document.querySelectorAll(".spark path")].some((one) => one.getAttribute("d").split("L").length > 40);
  await until(page, isLong);
  await visible(engine(page, "qwen3-coder-30b").getByText(/^[1-9]\d+ tok\/s$/));
  await page.mouse.move(0, 0);
  await page.evaluate(() => scrollTo(0, 0));
  writeFileSync(pool.file, await packed(page, await page.screenshot()));
  if (process.env.SHOTS) await everything(page);
}

// The same picture in fewer bytes: Chromium packs it quickly, not well.
async function packed(page, picture) {
  const { width, rows } = await page.evaluate(async (text) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0))]));
    const place = new OffscreenCanvas(image.width, image.height).getContext("2d");
    place.drawImage(image, 0, 0);
    const { data } = place.getImageData(0, 0, image.width, image.height);
    let rows = "";
    for (let at = 0; at < data.length; at += 4) rows += String.fromCharCode(data[at], data[at + 1], data[at + 2]);
    return { width: image.width, rows: btoa(rows) };
  }, picture.toString("base64"));
  const pixels = Buffer.from(rows, "base64");
  const height = pixels.length / 3 / width;
  const lines = Array.from({ length: height }, (_, y) => [Buffer.from([0]), pixels.subarray(y * width * 3, (y + 1) * width * 3)]);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const body = deflateSync(Buffer.concat(lines.flat()), { level: 9, memLevel: 9 });
  const chunks = [chunk("IHDR", head), chunk("IDAT", body), chunk("IEND", Buffer.alloc(0))];
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), ...chunks]);
}

function chunk(kind, data) {
  const named = Buffer.concat([Buffer.from(kind), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(named), 4);
  return Buffer.concat([frame.subarray(0, 4), named, frame.subarray(4)]);
}

// More than the one picture, for whoever works on the page.
async function everything(page) {
  const shot = (name) => page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: true });
  await engine(page, "qwen3-coder-30b").getByText("Details").click();
  await shot("dark");
  await page.emulateMedia({ colorScheme: "light" });
  for (const width of [1280, 1000, 360]) {
    await page.setViewportSize({ width, height: 800 });
    await shot(`light-${width}`);
  }
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByRole("button", { name: "Unload qwen3-coder-30b" }).click();
  await shot("dialog");
  await page.keyboard.press("Escape");
}

async function nobodyIsLeft(page) {
  for (const one of held) one.leave();
  pool.steps.forEach(open);
  await visible(part(page, "Waiting for room").getByText("Nothing waits."));
}

await look([theSceneIsSet, itIsDrawn, nobodyIsLeft], { viewport: { width: 1280, height: 840 } });
