// Whether somebody looks. A browser opens six connections to us for all its tabs together: a page that is hidden keeps no
// stream open, so that the one that is looked at is not kept waiting.

// Resolves when the page is seen, at once where it is.
export function shown() {
  return new Promise((go) => {
    const seen = new AbortController();
    const look = () => {
      if (document.hidden) return;
      seen.abort();
      go();
    };
    document.addEventListener("visibilitychange", look, { signal: seen.signal });
    look();
  });
}

// Its signal aborts when the page is hidden, or with `left`. Whoever is done earlier aborts it.
export function attention(left) {
  const gone = new AbortController();
  const { signal } = gone;
  document.addEventListener("visibilitychange", () => document.hidden && gone.abort(), { signal });
  left?.addEventListener("abort", () => gone.abort(), { signal });
  if (left?.aborted) gone.abort();
  return gone;
}
