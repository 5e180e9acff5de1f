// How the page asks the daemon: `fetch`, with the key in a header. The key is kept for this tab alone.

const OURS = "/api/motorpool/v1/";
const KEY = "motorpool.key";
// So long, in ms, an answer to a question may take; what is done on a wish takes as long as it takes.
const PATIENCE = 15_000;

// An answer that is a refusal; `status` 0: nobody answered.
export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

// The answer to a request, once its head is there. Anything but success is a `Refusal`.
export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const shown = key.get();
  const all = { ...headers, ...(shown ? { authorization: `Bearer ${shown}` } : {}) };
  if (body !== undefined) all["content-type"] = "application/json";
  const request = { method, headers: all, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { ...request, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "the daemon does not answer");
  }
  if (!answer.ok) throw await refusalOf(answer);
  return answer;
}

async function refusalOf(answer) {
  const told = await answer.json().catch(() => null);
  const error = told?.error ?? {};
  return new Refusal(answer.status, error.code ?? "", error.message ?? `the daemon answered ${answer.status}`);
}

// One of our own documents.
export async function read(path, options) {
  const signal = options?.method ? undefined : AbortSignal.timeout(PATIENCE);
  return (await ask(OURS + path, { signal, ...options })).json();
}

// The text of a stream, piece by piece.
export async function* pieces(answer) {
  const decoder = new TextDecoder();
  const body = answer.body.getReader();
  try {
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    // A stream that nobody reads any more is closed, so that the daemon need not write it.
    body.cancel().catch(() => {});
  }
}

// A stream of ours.
export function stream(path, options) {
  return ask(OURS + path, options);
}

export function engine(key, action, body) {
  return read(`engines/${encodeURIComponent(key)}/${action}`, { method: "POST", body });
}

export function model(id, action) {
  return read(`models/${encodeURIComponent(id)}/${action}`, { method: "POST" });
}
