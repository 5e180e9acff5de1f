// The official `openai` package of npm.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { url, keys, model } = JSON.parse(process.env.POOL);
const baseURL = `${url}/v1`;
const client = new OpenAI({ baseURL, apiKey: keys.all, maxRetries: 0 });
const messages = [{ role: "user", content: "Count from one to five." }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
};
const tools = [{ type: "function", function: { name: "weather", description: "Says the weather.", parameters } }];

async function engine(name) {
  const headers = { authorization: `Bearer ${keys.all}` };
  const status = await (await fetch(`${url}/api/motorpool/v1/status`, { headers })).json();
  return status.engines.find((one) => one.key.split(":")[1] === name);
}

async function untilFree(name) {
  for (let n = 0; n < 300; n++) {
    if (!(await engine(name)).leases?.length) return;
    await new Promise((go) => setTimeout(go, 20));
  }
  assert.fail(`still held: ${JSON.stringify(await engine(name))}`);
}

async function raised(kind, call) {
  const error = await call().then(() => assert.fail(`no ${kind.name}`), (error) => error);
  assert.equal(error.constructor, kind, `${error}`);
  return error;
}

async function chats() {
  const asked = { model, messages, max_tokens: 6, temperature: 0, seed: 1 };
  const whole = await client.chat.completions.create(asked);
  const said = whole.choices[0].message.content;
  assert.ok(said && whole._request_id && whole.usage.completion_tokens, JSON.stringify(whole));
  const options = { stream: true, stream_options: { include_usage: true } };
  let text = "", usage;
  for await (const chunk of await client.chat.completions.create({ ...asked, ...options })) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.deepEqual([text, usage.completion_tokens], [said, whole.usage.completion_tokens]);
}

async function toolsPass() {
  const asked = { model: "tooled", messages: [{ role: "user", content: "What is the weather in Paris?" }], tools,
    max_tokens: 40, temperature: 0 };
  const whole = await client.chat.completions.create(asked);
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  for (const reply of [whole, streamed]) {
    const call = reply.choices[0].message.tool_calls[0];
    assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["weather", { city: "Paris" }]);
  }
}

async function responses() {
  const asked = { model, input: "Count.", max_output_tokens: 6, temperature: 0 };
  const whole = await client.responses.create(asked);
  let text = "", last;
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    last = event.type;
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.ok(text);
  assert.deepEqual([text, last], [whole.output_text, "response.completed"]);
}

async function embeddingsAndLists() {
  const rows = await client.embeddings.create({ model: "embedder", input: ["one", "two"] });
  assert.ok(rows.data.length === 2 && rows.data[1].embedding.length > 0, JSON.stringify(rows));
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert.ok(ids.includes(model) && ids.includes("embedder"), ids.join());
}

async function errors() {
  const ask = (name, by = client, more = {}) =>
    by.chat.completions.create({ model: name, messages, max_tokens: 4, ...more });
  const missing = await raised(OpenAI.NotFoundError, () => ask("gemma3-270"));
  assert.deepEqual([missing.code, missing.param], ["model_not_found", "model"]);
  await raised(OpenAI.AuthenticationError, () => ask(model, client.withOptions({ apiKey: `mp_${"0".repeat(64)}` })));
  await raised(OpenAI.PermissionDeniedError, () => ask(model, client.withOptions({ apiKey: keys.reader })));
  await raised(OpenAI.NotFoundError, () => ask(model, client.withOptions({ apiKey: keys.narrow })));
  await raised(OpenAI.BadRequestError, () => ask("embedder"));
  await raised(OpenAI.BadRequestError, () => ask(model, client, { response_format: { type: "no such" } }));
  const statuses = [];
  const counting = async (...to) => {
    const answer = await fetch(...to);
    statuses.push(answer.status);
    return answer;
  };
  const patient = client.withOptions({ maxRetries: 3, fetch: counting });
  const full = await raised(OpenAI.InternalServerError, () => ask("big", patient));
  assert.deepEqual([full.status, full.code, statuses], [503, "capacity_denied", [503]]);
  const died = await raised(OpenAI.APIError, async () => {
    for await (const chunk of await ask("dying", client, { stream: true, max_tokens: 20 })) assert.ok(chunk.id);
  });
  assert.equal(died.code, "engine_crashed");
}

async function retries() {
  const kept = client.withOptions({ apiKey: keys.single });
  const stream = await kept.chat.completions.create({ model: "slow", messages, stream: true });
  for await (const chunk of stream.tee()[0]) if (chunk.id) break;
  const asked = { model, messages, max_tokens: 2 };
  const limited = await raised(OpenAI.RateLimitError, () => kept.chat.completions.create(asked));
  assert.equal(limited.headers.get("retry-after"), "1");
  const answers = [];
  const lettingGo = async (...to) => {
    const answer = await fetch(...to);
    answers.push([answer.status, performance.now()]);
    stream.controller.abort();
    await untilFree("slow");
    return answer;
  };
  const reply = await kept.withOptions({ maxRetries: 1, fetch: lettingGo }).chat.completions.create(asked);
  assert.ok(reply.choices.length);
  assert.deepEqual(answers.map(([status]) => status), [429, 200]);
  assert.ok(answers[1][1] - answers[0][1] >= 1000, "`Retry-After` was not waited for");
}

async function cancellation() {
  for (const stream of [false, true]) {
    const leaving = new AbortController();
    const asked = client.chat.completions.create({ model: "slow", messages, stream }, { signal: leaving.signal });
    if (stream) {
      for await (const chunk of await asked) {
        assert.ok(chunk.id);
        leaving.abort();
      }
    } else {
      setTimeout(() => leaving.abort(), 300);
      await raised(OpenAI.APIUserAbortError, () => asked);
    }
    await untilFree("slow");
  }
}

const claims = [chats, toolsPass, responses, embeddingsAndLists, errors, retries, cancellation];
for (const claim of claims.filter((one) => process.argv.length < 3 || process.argv.includes(one.name))) {
  const begun = performance.now();
  await claim().catch((error) => {
    throw new Error(`${claim.name} does not hold`, { cause: error });
  });
  console.log(`${claim.name}: ${Math.round(performance.now() - begun)} ms`);
}
