// Creates elements, and formats numbers. Data from the service becomes text, never markup.
const page = document, $ = (id) => page.getElementById(id);
// Creates an element: name with classes, optional attributes, children.
const el = (what, ...rest) => {
  const [name, ...classes] = what.split("."), given = rest[0]?.constructor === Object ? rest.shift() : {};
  const made = /svg|path|rect|text/.test(name) ? page.createElementNS("http://www.w3.org/2000/svg", name) : page.createElement(name);
  if (classes[0]) given.class = classes.join(" ");
  // A number next to the picture shows the same.
  if (name === "svg") given["aria-hidden"] = true;
  for (const key in given) if (given[key] || given[key] === 0) made.setAttribute(key, given[key]);
  made.append(...rest.flat(2).filter((child) => child || child === 0));
  return made;
};
const bold = (text, kind) => el("b", { class: kind }, text);
const code = (text) => el("code", text);
const soft = (text) => el("span.soft", text);
const badge = (kind, text) => el("span", { class: `badge ${kind}` }, text);
const button = (what, text, key) => el("button", { type: "button", "data-do": what, "data-key": key }, text);

// Replaces a box's children: equal ones stay, with focus and selection. Rows are identified by their key.
const patch = (box, ...made) => {
  const rows = new Map([...box.children].map((row) => [row.dataset.key, row]));
  let at = box.firstChild;
  for (let next of made.flat()) {
    next = next.nodeType ? next : page.createTextNode(next);
    const key = next.dataset?.key, old = key ? rows.get(key) : at?.nodeName === next.nodeName && !at.dataset?.key && at;
    if (!old) { box.insertBefore(next, at); continue; }
    if (old === at) at = at.nextSibling; else box.insertBefore(old, at);
    if (old.data !== next.data) old.data = next.data;
    for (const { name } of [...(old.attributes ?? [])]) if (!next.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes ?? []) old.setAttribute(name, value);
    if (next.attributes) patch(old, [...next.childNodes]);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
};
const fill = (id, ...made) => patch($(id), ...made);

const grouped = (n) => Math.round(n).toLocaleString("en");
const rate = (n) => (n < 0.05 ? "0" : n < 9.95 ? n.toFixed(1) : grouped(n));
const percent = (part, whole) => {
  const share = (100 * part) / Math.max(whole, 1e-9);
  return part <= 0 ? "0 %" : share < 0.01 ? "<0.01 %" : `${share < 9.95 ? share.toPrecision(2) : Math.round(share)} %`;
};
const plural = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;
const short = (n) => (n < 1000 ? n : n < 1e6 ? `${n / 1e3}k` : `${n / 1e6}M`);
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);
const lasting = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`);
const micros = (us) => (us == null ? "–" : us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${+(us / 1e3).toPrecision(3)} ms` : lasting(us / 1e6));
const fix = (n) => n.toFixed(1);
const total = (list) => list.reduce((sum, n) => sum + n, 0);
