// A question that is asked before work would end.
import { html, useEffect, useRef } from "../vendor/preact-htm.js";

export function Dialog({ dialog: { title, text, answers, answer } }) {
  const place = useRef(null);
  useEffect(() => {
    // The browser keeps the focus inside, ends it with Escape, and gives the focus back to the button that asked.
    place.current.showModal();
  }, []);
  const finish = (value) => {
    place.current.close();
    answer(value);
  };
  const cancelled = (event) => {
    event.preventDefault();
    finish(null);
  };
  return html`<dialog ref=${place} aria-labelledby="asked" aria-describedby="asked-text" onCancel=${cancelled}>
    <h2 id="asked">${title}</h2>
    <p id="asked-text">${text}</p>
    <div class="answers">
      <button autofocus onClick=${() => finish(null)}>Cancel</button>
      ${answers.map(({ label, value, tone }) => html`<button class=${tone} onClick=${() => finish(value)}>${label}</button>`)}
    </div>
  </dialog>`;
}
