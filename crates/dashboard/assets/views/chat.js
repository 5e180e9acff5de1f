// A small chat to try a model: the reply as it streams, and a button that ends it.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { ask, pieces } from "../api.js";
import { duration, number } from "../format.js";
import { reader } from "../sse.js";
import { store } from "../state.js";
import { Part } from "./parts.js";

const change = (more) => store.set(({ chat }) => ({ chat: { ...chat, ...more(chat) } }));
const changeLast = (more) =>
  change(({ messages }) => ({ messages: [...messages.slice(0, -1), { ...messages.at(-1), ...more(messages.at(-1)) }] }));

export function Chat({ state: { chat } }) {
  const [names, setNames] = useState([]);
  const [text, setText] = useState("");
  const log = useRef(null);
  const isRunning = chat.running !== null;
  useEffect(() => {
    chatModels().then(setNames, () => setNames([]));
  }, []);
  useEffect(() => {
    log.current.scrollTop = log.current.scrollHeight;
  }, [chat.messages]);
  const model = chat.model || names[0] || "";
  const send = (event) => {
    event?.preventDefault();
    if (isRunning || !text.trim() || !model) return;
    setText("");
    converse(model, text.trim());
  };
  const typed = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  const more = html`<span class="choices"><label>Model <select value=${model} onChange=${(event) => change(() => ({ model: event.target.value }))}>
      ${names.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
    <button class="quiet" disabled=${isRunning || chat.messages.length === 0} onClick=${() => change(() => ({ messages: [] }))}>Clear</button></span>`;
  return html`<${Part} title="Chat" id="chat" more=${more}>
    <div class="talk" ref=${log} role="log" aria-live="off" aria-busy=${isRunning} aria-label="Conversation" tabindex="0">
      ${chat.messages.length === 0 && html`<p class="empty">Ask ${model || "a model"} something. It is loaded when it is not.</p>`}
      ${chat.messages.map((message) => html`<${Message} message=${message} />`)}
    </div>
    <form class="ask" onSubmit=${send}>
      <label class="unseen" for="prompt">Message</label>
      <textarea id="prompt" rows="2" placeholder="Message (Enter sends)" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${typed}></textarea>
      ${isRunning ? html`<button class="bad" type="button" onClick=${() => chat.running.abort()}>Stop</button>` : html`<button class="main" type="submit" disabled=${!text.trim() || !model}>Send</button>`}
    </form>
  <//>`;
}

function Message({ message: { role, content, thought, error, stats, stopped } }) {
  return html`<article class="message ${role}" aria-label=${role === "user" ? "You" : "Model"}>
    ${thought && html`<details><summary>Reasoning</summary><p>${thought}</p></details>`}
    <p>${content || (error || stopped ? "" : "…")}</p>
    ${error && html`<p class="bad-text" role="alert">${error}</p>`}
    ${(stats || stopped) && html`<p class="muted">${[stopped && "Stopped.", stats].filter(Boolean).join(" ")}</p>`}
  </article>`;
}

// Whatever this key may chat with, other servers' models too; those that are loaded first.
async function chatModels() {
  const { data } = await (await ask("/v1/models")).json();
  const rank = (row) => (row.status.value === "loaded" ? 0 : 1);
  const rows = data.filter((row) => row.capabilities.length === 0 || row.capabilities.includes("chat"));
  return rows.sort((a, b) => rank(a) - rank(b)).map((row) => row.id);
}

async function converse(model, text) {
  const running = new AbortController();
  const said = store.get().chat.messages.filter((message) => message.content && !message.error);
  const messages = [...said.map(({ role, content }) => ({ role, content })), { role: "user", content: text }];
  change((chat) => ({ model, running, messages: [...chat.messages, { role: "user", content: text }, { role: "assistant", content: "" }] }));
  try {
    await reply({ model, messages, stream: true, stream_options: { include_usage: true } }, running.signal);
  } catch (error) {
    changeLast(() => (error.name === "AbortError" ? { stopped: true } : { error: error.message }));
  }
  change(() => ({ running: null }));
}

async function reply(body, signal) {
  const asked = performance.now();
  const answer = await ask("/v1/chat/completions", { method: "POST", body, signal });
  const read = reader();
  let first = null;
  for await (const piece of pieces(answer)) {
    for (const { data } of read(piece)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      const delta = chunk.choices?.[0]?.delta ?? {};
      if (delta.content || delta.reasoning_content) {
        first ??= performance.now();
        changeLast(({ content, thought = "" }) => ({ content: content + (delta.content ?? ""), thought: thought + (delta.reasoning_content ?? "") }));
      }
      if (chunk.usage && first) changeLast(() => ({ stats: statistics(chunk.usage, { asked, first }) }));
    }
  }
}

function statistics({ prompt_tokens, completion_tokens }, { asked, first }) {
  const seconds = (performance.now() - first) / 1000;
  const pace = completion_tokens > 1 && seconds > 0 ? `, ${number(Math.round((10 * (completion_tokens - 1)) / seconds) / 10)} tok/s` : "";
  return `${prompt_tokens} + ${completion_tokens} tokens, first after ${duration(first - asked)}${pace}`;
}
