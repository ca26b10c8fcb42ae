"use strict";
// Elements, and numbers, shares and times as texts. What comes from the report becomes text, never markup.

const NONE = "–";
const SVG_NAMES = ["svg", "g", "path", "text", "rect", "circle", "clipPath", "title", "desc"];

// An element: its name with its classes, its attributes if it has some, its children. What is null, undefined or false
// is left out.
const element = (what, ...rest) => {
  const [name, ...classes] = what.split(".");
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  const isSvg = SVG_NAMES.includes(name);
  const made = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...rest.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};
const bold = (text) => element("b", text);
const code = (text) => element("code", text);
const strong = (text) => element("strong", text);
const note = (...text) => element("p.note", ...text);
const list = (kind, items) => element(kind, items.map((item) => element("li", item)));

// A box that scrolls to the side, so that the page does not.
const scrolling = (label, child) => element("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, child);

// A column of a table: its heading, and its cell for an item.
const textColumn = (name, cell) => ({ name, cell, kind: "" });
const numberColumn = (name, cell) => ({ name, cell, kind: ".n" });

// A table with a row for each item. The first cell of a row is its heading.
const table = (attributes, caption, columns, items) => {
  const shown = columns.filter(Boolean);
  const heads = shown.map(({ name, kind }) => element(`th${kind}`, { scope: "col" }, name));
  const row = (item) => element("tr", shown.map(({ cell, kind }, at) =>
    at ? element(`td${kind}`, cell(item)) : element(`th${kind}`, { scope: "row" }, cell(item))));
  return element("table", attributes, element("caption", caption), element("thead", element("tr", heads)),
    element("tbody", items.map(row)));
};

const grouped = (number) => number.toLocaleString("en");
const orNone = (value, text) => (value === null || value === undefined ? NONE : text(value));
const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, number), 0);

// Parts per million, rounded down.
const ppmOf = (part, whole) => Math.floor((part * 1e6) / Math.max(whole, 1));
const percent = (ppm) => String(Number((ppm / 1e4).toFixed(4)));
// A share that rounds down to 0 is not shown as none.
const share = (part, ppm) => (ppm === 0 && part > 0 ? "under 0.0001 %" : `${percent(ppm)} %`);
const shareOf = (part, whole) => share(part, ppmOf(part, whole));

// At most four characters, for the labels of an axis: `950`, `1.5k`, `20M`.
const short = (number) => {
  if (number < 1e3) return String(number);
  const [unit, name] = number < 1e6 ? [1e3, "k"] : number < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const tenths = Math.floor(number / (unit / 10));
  return `${tenths < 100 ? tenths / 10 : Math.floor(tenths / 10)}${name}`;
};

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
// A period in its largest unit without a remainder: `90 s`, `1 min`, `1 d`.
const period = (seconds) => {
  const [unit, name] = UNITS.find(([unit]) => seconds >= unit && seconds % unit === 0) ?? UNITS[3];
  return `${seconds / unit} ${name}`;
};
// A length of time in its two largest units, rounded down: `2 d 3 h`, `4 s`, `250 ms`.
const span = (us) => {
  if (us < 1e3) return `${us} µs`;
  if (us < 1e6) return `${Math.floor(us / 1e3)} ms`;
  let rest = Math.floor(us / 1e6);
  const first = UNITS.findIndex(([unit]) => rest >= unit);
  const parts = UNITS.slice(first, first + 2).map(([unit, name]) => {
    const count = Math.floor(rest / unit);
    rest %= unit;
    return count > 0 && `${count} ${name}`;
  });
  return parts.filter(Boolean).join(" ");
};
// A time in UTC: `2026-11-21 14:05:00`.
const time = (us) => new Date(us / 1e3).toISOString().slice(0, 19).replace("T", " ");

// At most 80 characters of a key, which can be as long as a line of the log.
const cut = (key) => {
  const letters = [...key];
  return letters.length > 80 ? `${letters.slice(0, 80).join("")}…` : key;
};
