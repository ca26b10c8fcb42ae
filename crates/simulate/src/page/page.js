"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Numbers as the program writes them.
  const grouped = (number) => number.toLocaleString("en");
  const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
  const share = (part, whole) => {
    const ppm = Math.floor((part * 1e6) / Math.max(whole, 1));
    if (ppm === 0 && part > 0) return "under 0.0001 %";
    return `${String(Number((ppm / 1e4).toFixed(4)))} %`;
  };
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // An axis of a picture: value to place, and back.
  const axis = (svg, name) => {
    const [kind, ...ends] = svg.dataset[name].split(" ");
    const [low, high, from, to] = ends.map(Number);
    const measure = kind === "log" ? Math.log : Number;
    const value = kind === "log" ? Math.exp : Number;
    const span = measure(high) - measure(low);
    return {
      from,
      to,
      at: (v) => from + ((measure(Math.min(Math.max(v, low), high)) - measure(low)) / span) * (to - from),
      back: (place) => value(measure(low) + ((place - from) / (to - from)) * span),
    };
  };

  // The slider: moves the limit line in both pictures and says what the limit would do.
  const showLimit = (section, rule, point) => {
    const curve = rule.what_if;
    const limit = curve.limit[point];
    const slider = section.querySelector("input[type=range]");
    slider.value = point;
    slider.setAttribute("aria-valuetext", `${grouped(limit)} per ${rule.period}`);
    const bold = (text) => element("b", text);
    const good = curve.good.length ? `, ${grouped(curve.good[point])} of them good` : "";
    section.querySelector("output").replaceChildren(
      bold(grouped(limit)), ` per ${rule.period}: `,
      bold(counted(curve.denied[point], "request")),
      ` over it (${share(curve.denied[point], rule.asked)})${good}; `,
      bold(counted(curve.keys[point], "key")), ` hit of ${grouped(rule.keys)}`,
    );
    const hit = rule.top.filter(([, peak]) => peak > limit).map(([key]) => key);
    const named = hit.slice(0, 5).join(", ") + (hit.length > 5 ? ` and ${hit.length - 5} more` : "");
    section.querySelector(".whom").textContent = rule.top.length
      ? `Of the ${counted(rule.top.length, "key")} most often over the judged limit, ${hit.length} would be hit` +
        (hit.length ? `: ${named}` : "")
      : "";
    for (const svg of all("svg.demand, svg.peaks", section)) {
      const line = svg.querySelector(".limit");
      line.querySelector("text").textContent = `limit ${grouped(limit)}`;
      if (svg.dataset.chart === "demand") {
        const y = axis(svg, "y").at(limit);
        line.setAttribute("transform", `translate(0 ${y.toFixed(1)})`);
        const above = svg.querySelector("clipPath rect");
        if (above) above.setAttribute("height", y.toFixed(1));
      } else {
        line.setAttribute("transform", `translate(${axis(svg, "x").at(limit).toFixed(1)} 0)`);
      }
    }
  };
  for (const section of all("section.rule")) {
    const controls = section.querySelector(".controls");
    if (!controls) continue;
    const rule = data.rules[section.dataset.rule];
    controls.hidden = false;
    showLimit(section, rule, rule.what_if.start);
    controls.querySelector("input").addEventListener("input", (event) => {
      showLimit(section, rule, Number(event.target.value));
    });
    for (const button of all("button", controls)) {
      button.addEventListener("click", () => showLimit(section, rule, Number(button.dataset.point)));
    }
  }

  // What a place in a picture stands for: the place of the nearest point, and a text.
  const last = (list, holds) => Math.max(0, list.findLastIndex(holds));
  const column = (columns, x) => {
    const count = columns.counts[0].length;
    return Math.min(count - 1, Math.max(0, Math.floor((x - columns.start) / columns.step)));
  };
  const columnText = (columns, at) => {
    const counts = columns.names.map((name, list) => `${name}: ${grouped(columns.counts[list][at])}`);
    return `${time(columns.start + at * columns.step)} UTC. ${counts.join(". ")}`;
  };
  const readers = {
    demand: (rule, x) => {
      const at = last(rule.demand.rank, (rank) => rank <= x);
      const [rank, units] = [rule.demand.rank[at], rule.demand.units[at]];
      return [rank, `Rank ${grouped(rank)}: at most ${counted(units, "unit")} in ${rule.period}`];
    },
    peaks: (rule, x) => {
      const at = last(rule.what_if.limit, (limit) => limit <= x);
      const [limit, keys] = [rule.what_if.limit[at], rule.what_if.keys[at]];
      return [limit, `${share(rule.keys - keys, rule.keys)} of keys stay within ${grouped(limit)}; ${grouped(keys)} do not`];
    },
    time: (rule, x) => {
      const at = column(rule.time, x);
      return [rule.time.start + (at + 0.5) * rule.time.step, columnText(rule.time, at)];
    },
    both: (_, x) => {
      const at = column(data.comparison, x);
      return [data.comparison.start + (at + 0.5) * data.comparison.step, columnText(data.comparison, at)];
    },
  };
  const tip = document.getElementById("tip");
  for (const svg of all("svg[data-chart]")) {
    // The name stays for screen readers; a title element would show a second tip.
    const title = svg.querySelector("title");
    svg.setAttribute("aria-label", title.textContent);
    svg.removeAttribute("aria-labelledby");
    title.remove();
    const read = readers[svg.dataset.chart];
    if (!read) continue;
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross");
    svg.append(cross);
    const [x, y] = [axis(svg, "x"), axis(svg, "y")];
    const hide = () => {
      tip.hidden = true;
      cross.removeAttribute("d");
    };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const place = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
      if (place < x.from || place > x.to) return hide();
      const [at, text] = read(data.rules[svg.dataset.rule], x.back(place));
      cross.setAttribute("d", `M${x.at(at).toFixed(1)} ${y.to}V${y.from}`);
      tip.textContent = text;
      tip.hidden = false;
      const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.left = `${left}px`;
      tip.style.top = `${event.clientY + 16}px`;
    });
  }

  // The numbers of a picture as a table, made when it is opened.
  const tables = {
    demand: (rule) => [["Rank", "Units"], rule.demand.rank.map((rank, at) => [rank, rule.demand.units[at]])],
    "what-if": ({ what_if: { limit, denied, good, keys } }) => [
      ["Limit", "Requests over", ...(good.length ? ["Good over"] : []), "Keys over"],
      limit.map((units, at) => [units, denied[at], ...(good.length ? [good[at]] : []), keys[at]]),
    ],
    time: ({ time: { start, step, names, counts } }) => [
      ["Time (UTC)", ...names],
      counts[0].map((_, at) => [time(start + at * step), ...counts.map((list) => list[at])]),
    ],
  };
  for (const details of all("details.numbers")) {
    details.hidden = false;
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      const [names, rows] = tables[details.dataset.numbers](data.rules[details.dataset.rule]);
      const table = element("table");
      const head = table.createTHead().insertRow();
      for (const name of names) {
        const cell = element("th", name);
        cell.scope = "col";
        cell.className = "n";
        head.append(cell);
      }
      const body = table.createTBody();
      for (const row of rows) {
        const line = body.insertRow();
        for (const value of row) {
          const cell = line.insertCell();
          cell.className = "n";
          cell.textContent = typeof value === "number" ? grouped(value) : value;
        }
      }
      const box = element("div");
      box.tabIndex = 0;
      box.append(table);
      details.append(box);
    });
  }

  // The heat map: a row for each weekday, a cell for each hour.
  const short = (number) => Intl.NumberFormat("en", { notation: "compact" }).format(number);
  for (const box of all(".heat-map")) {
    const { heat } = data.rules[box.closest("section").dataset.rule];
    const most = Math.max(...heat, 1);
    const table = box.querySelector("table");
    const heading = (row, text, scope) => {
      const cell = element("th", text);
      cell.scope = scope;
      row.append(cell);
    };
    const hours = table.createTHead().insertRow();
    ["Day", ...Array(24).keys()].forEach((name) => heading(hours, name, "col"));
    const body = table.createTBody();
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].forEach((day, at) => {
      const row = body.insertRow();
      heading(row, day, "row");
      for (const count of heat.slice(at * 24, at * 24 + 24)) {
        const cell = row.insertCell();
        if (count < 0) continue;
        cell.textContent = short(count);
        cell.className = `h${Math.ceil((count * 6) / most)}`;
      }
    });
    box.hidden = false;
  }

  // Sorting: a button in each heading. Numbers start with the largest, texts with the first.
  const value = (cell, isNumber) => {
    const text = cell.dataset.value ?? cell.textContent;
    if (!isNumber) return text;
    if (text.startsWith("under")) return 0.00005;
    const number = parseFloat(text.replace(/[,≤ ]/g, ""));
    return Number.isNaN(number) ? -1 : number;
  };
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    all("thead th", table).forEach((heading, at) => {
      const button = element("button", heading.textContent);
      button.type = "button";
      heading.replaceChildren(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const isNumber = heading.classList.contains("n");
        const first = isNumber ? "descending" : "ascending";
        const second = first === "descending" ? "ascending" : "descending";
        const order = heading.getAttribute("aria-sort") === first ? second : first;
        for (const other of all("thead th", table)) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const rows = [...body.rows].map((row) => [value(row.cells[at], isNumber), row]);
        rows.sort(([a], [b]) => sign * (typeof a === "string" ? a.localeCompare(b, "en") : a - b));
        body.append(...rows.map(([, row]) => row));
        document.getElementById("status").textContent = `Sorted by ${button.textContent}, ${order}`;
      });
    });
  }
})();
