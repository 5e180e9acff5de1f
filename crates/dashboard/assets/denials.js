// Denials, from wherever the daemon tells them, in one form with their arithmetic. Pure.

const KINDS = ["capacity-denied", "context-denied"];

export function isDenial(event) {
  return KINDS.includes(event.event);
}

// The last denials, newest first: the daemon's own list where it has one, else what the events tell.
export function denials(listed, events) {
  const told = listed ? listed.map(fromList) : events.filter(isDenial).map(fromEvent);
  return told.sort((a, b) => b.at - a.at).slice(0, 20);
}

function fromEvent(event) {
  const context = event.event === "context-denied" ? { asked: event.asked, fits: event.fits } : null;
  return form(event, { at: event.at, context, requested: event.requestedBytes ?? null });
}

function fromList(row) {
  const { committedBytes, context, help, holders = [], message, requested, tenants = [], which } = row;
  const more = { which, help, message, holders, tenants, context: context ?? null };
  return form(row, { ...more, at: Date.parse(row.at) || 0, requested: requested?.totalBytes ?? null, committed: committedBytes ?? null });
}

// `committed` is told only where it and what was asked are the sum that meets the bound: a card's bound is met by parts.
function form({ key, wouldCommitBytes: would, boundBytes: bound }, told) {
  const { committed = null, requested } = told;
  const adds = committed !== null && requested !== null && committed + requested === would;
  const blank = { which: null, help: null, message: null, holders: [], tenants: [] };
  return { ...blank, ...told, key, would, bound, short: Math.max(0, would - bound), committed: adds ? committed : null };
}
