// The daemon goes and comes back; the page says so, and goes on by itself.
import { look, open, part, pool, taken, visible } from "./browser.mjs";

async function aDaemonThatIsGoneIsSaid(page) {
  await visible(page.getByText("Live", { exact: true }));
  await visible(page.getByRole("button", { name: "Load m" }));
  open(pool.stop);
  await taken(pool.stop);
  await visible(page.getByRole("alert").getByText("The daemon does not answer."));
  await visible(page.getByText("Disconnected"));
  await visible(part(page, "Memory"));
}

async function oneThatIsBackIsFoundByItself(page) {
  open(pool.start);
  await taken(pool.start);
  await visible(page.getByText("Live", { exact: true }));
  await visible(page.getByText(/Connected again|was restarted/));
}

async function whatHappensAfterwardsIsSeen(page) {
  await page.getByRole("button", { name: "Load m" }).click();
  await visible(part(page, "Events").getByText(/ready within/));
}

await look([aDaemonThatIsGoneIsSaid, oneThatIsBackIsFoundByItself, whatHappensAfterwardsIsSeen], { expected: ["ERR_", "Failed to load"] });
