// Asks for a key, and says what one may not do.
import { html, useState } from "../vendor/preact-htm.js";
import { lock, unlock } from "../state.js";

export function KeyForm({ state }) {
  const [value, setValue] = useState("");
  const sent = (event) => {
    event.preventDefault();
    if (value.trim()) unlock(value.trim());
  };
  return html`<section class="card lone" aria-labelledby="locked">
    <h2 id="locked">This server needs a key</h2>
    <p>One with the scope <code>read</code> shows the pool, one with <code>manage</code> may change it:
      <code>motorpool key new NAME --scope read,manage,inference</code>. It is kept in this tab until that is closed, and is sent in a
      header only.</p>
    <form onSubmit=${sent}>
      <label for="key">Key</label>
      <input id="key" type="password" autocomplete="off" spellcheck=${false} placeholder="mp_…" value=${value}
        aria-invalid=${state.link.why ? "true" : null} aria-describedby=${state.link.why ? "wrong" : null}
        onInput=${(event) => setValue(event.target.value)} />
      <button class="main" type="submit">Unlock</button>
    </form>
    ${state.link.why && html`<p id="wrong" class="bad-text" role="alert">${state.link.why}</p>`}
  </section>`;
}

// A key that is good, but not for this.
export function Narrow({ state }) {
  return html`<section class="card lone" aria-labelledby="narrow">
    <h2 id="narrow">The pool is not shown here</h2>
    <p>${state.link.why}. The scope <code>read</code> is what it takes. <a href="#/chat">Chat</a> may work.</p>
    <button onClick=${lock}>Use another key</button>
  </section>`;
}
