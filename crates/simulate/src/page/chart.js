// What all pictures have: scales, a frame with a name for screen readers, axes, lines, and a text for the pointer.

// A scale: values from `low` to `high` lie between the coordinates `from` and `to`. `ticks` are round values for labels.
const scale = (low, high, [from, to], measure, value, ticks) => {
  const [start, length] = [measure(low), measure(high) - measure(low)];
  return {
    from,
    to,
    ticks,
    at: (v) => from + ((measure(Math.min(Math.max(v, low), high)) - start) / length) * (to - from),
    back: (place) => value(start + ((place - from) / (to - from)) * length),
  };
};

// 1, 2 or 5 times a power of ten, at least `least`.
const roundStep = (least) => {
  for (let unit = 1; ; unit *= 10) for (const part of [1, 2, 5]) if (part * unit >= least) return part * unit;
};
const multiples = (step, low, high) => {
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
};
const linear = (low, most, ends) => {
  const high = Math.max(most, low + 1);
  return scale(low, high, ends, Number, Number, multiples(roundStep((high - low) / 4), low, high));
};

// From 1 to a little more than `most`: 0 has no logarithm.
const logarithmic = (most, ends) => {
  const high = Math.max(most, 2) * 1.25;
  // 1, 2, 5, 10 on a short axis; 1, 10, 100 on a long one; 1, 1,000 and so on on a very long one.
  const [parts, factor] = high <= 2e3 ? [[1, 2, 5], 10] : high <= 2e8 ? [[1], 10] : [[1], 1_000];
  const ticks = [];
  for (let unit = 1; unit <= high; unit *= factor) ticks.push(...parts.map((part) => part * unit));
  return scale(1, high, ends, Math.log, Math.exp, ticks.filter((tick) => tick <= high));
};

const place = (number) => String(Number(number.toFixed(1)));
const label = (kind, x, y, text) => element(`text${kind}`, { x: place(x), y: place(y) }, text);
const line = (kind, d) => element(`path${kind}`, { d });

// Grid lines with labels: `ticks` are pairs of a value and its label.
const yAxis = (x, y, ticks) => [
  line(".grid", ticks.map(([tick]) => `M${x.from} ${place(y.at(tick))}H${x.to}`).join("")),
  element("g.labels.y", ticks.map(([tick, text]) => label("", x.from - 6, y.at(tick) + 4, text))),
];
const xAxis = (x, y, ticks) => [
  line(".grid", ticks.map(([tick]) => `M${place(x.at(tick))} ${y.to}V${y.from}`).join("")),
  element("g.labels.x", ticks.map(([tick, text]) => label("", x.at(tick), y.from + 16, text))),
];
const shortTicks = ({ ticks }) => ticks.map((tick) => [tick, short(tick)]);

// A path that stays at each value until the next x, and at the last one until `end`. Whole pixels make sharp edges.
const steps = (points, end) => {
  let [path, before] = ["", undefined];
  for (const [x, y] of points.map((point) => point.map(Math.round))) {
    if (before === undefined) path = `${x} ${y}`;
    else if (y !== before) path += `H${x}V${y}`;
    before = y;
  }
  return `${path}H${Math.round(end)}`;
};

// A picture. `read` tells what a value of the x axis stands for: the nearest value that was counted, and a text.
const picture = ({ kind, id, title, description, size: [width, height], x, y, read }, ...parts) => {
  const about = `${kind}-${id}-d`;
  const named = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, "aria-describedby": about };
  const svg = element(`svg.chart.${kind}`, named, element("desc", { id: about }, description), ...parts);
  followPointer(svg, x, y, read);
  return svg;
};

const followPointer = (svg, x, y, read) => {
  const tip = document.getElementById("tip");
  const cross = line(".cross", "");
  svg.append(cross);
  const hide = () => {
    tip.hidden = true;
    cross.setAttribute("d", "");
  };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const pointer = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    if (pointer < x.from || pointer > x.to) return hide();
    const [value, text] = read(x.back(pointer));
    cross.setAttribute("d", `M${place(x.at(value))} ${y.to}V${y.from}`);
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  });
};

// A picture under its heading. `numbers` are those of the picture: names of columns, and a function for the rows. Their
// table is made when it is opened.
const figure = (heading, svg, legend, numbers) => {
  const made = element("figure", element("figcaption", element("h3", heading)), svg);
  if (legend) made.append(element("p.legend", legend));
  if (!numbers) return made;
  const details = element("details.numbers", element("summary", "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.querySelector("table")) return;
    const [names, rows] = numbers;
    const text = (value) => (typeof value === "number" ? grouped(value) : value);
    const columns = names.map((name, at) => numberColumn(name, (row) => text(row[at])));
    details.append(element("div", { tabindex: 0 }, table({}, heading, columns, rows())));
  });
  made.append(details);
  return made;
};
const key = (kind, text) => element(`span.key${kind}`, text);
