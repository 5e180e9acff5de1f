// Events of a stream, cut from its text. Pure: text in, events out.

// A reader that is fed pieces of a stream, wherever they are cut, and returns the events that are whole.
export function reader() {
  let rest = "";
  return (piece) => {
    rest += piece;
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop();
    return blocks.map(event).filter(Boolean);
  };
}

// One event, or nothing where there are only comments.
function event(block) {
  const found = { id: null, event: "message", data: [] };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0 || line === "") continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") found.data.push(value);
    else if (name === "id" || name === "event") found[name] = value;
  }
  return found.data.length ? { ...found, data: found.data.join("\n") } : null;
}
