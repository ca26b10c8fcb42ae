// The pictures: keys by demand, keys within a limit, and counts over time.

const last = (numbers, value) => Math.max(0, numbers.findLastIndex((number) => number <= value));

// The period of a limit: a window of its calendar, if it has one.
const ownPeriod = (rule) => (rule.calendar ? `window of ${rule.calendar}` : period(rule.period_s));
// Whether each point of the curve was decided by the algorithm of the limit. The points of a fixed window are read off
// the peaks of the keys.
const isSwept = (rule) => rule.algorithm !== "fixed_window";
const recommended = (rule) => (rule.recommendation?.no_recommendation === null ? rule.recommendation.limit : undefined);
// Units per period of the limit in force, if it has the same period.
const unitsInForce = (rule) => (rule.old?.period_s === rule.period_s ? rule.old.limit : undefined);
// The limits that stay where they are, as `[class, name, limit]`.
const marksOf = (rule) => [[".old", "current", unitsInForce(rule)], [".recommended", "recommended", recommended(rule)]]
  .filter(([, , limit]) => limit !== undefined);

// The axis of units, which holds all demands and all limits.
const unitScale = (rule, ends) => logarithmic(largest([
  rule.what_if.points.at(-1)?.limit ?? 0, rule.keys_by_demand[0]?.units ?? 0, rule.limit, rule.old?.limit ?? 0,
  recommended(rule) ?? 0,
]), ends);

// Demand against rank, both logarithmic. Returns the picture, and the function that moves the limit line.
const demandPicture = (rule, id) => {
  const size = [520, 300];
  const x = logarithmic(rule.keys, [50, 505]);
  const y = unitScale(rule, [255, 30]);
  const ranks = rule.keys_by_demand.map(({ rank }) => rank);
  const units = rule.keys_by_demand.map(({ units }) => units);
  const curve = steps(ranks.map((rank, at) => [x.at(rank), y.at(units[at])]), x.at(rule.keys));
  const above = element("rect", { x: 0, y: 0, width: size[0], height: 0 });
  const text = label("", x.to, -4, "");
  const limitLine = element("g.limit", line("", `M${x.from} 0H${x.to}`), text);
  const marks = marksOf(rule);
  const svg = picture(
    {
      kind: "demand", id, size, x, y,
      title: `Keys of ${rule.rule} by demand, descending`,
      description: `${counted(rule.keys, "key")}. The key with the highest demand asked for ${grouped(units[0] ?? 0)} ` +
        `units in one period of ${ownPeriod(rule)}; the limit is ${grouped(rule.limit)}. Half of the keys never asked for ` +
        `more than ${grouped(rule.own_peaks.p50)}.`,
      read: (value) => {
        const at = last(ranks, value);
        const [rank, most] = [ranks[at] ?? 1, units[at] ?? 0];
        return [rank, `Rank ${grouped(rank)}: at most ${counted(most, "unit")} in ${ownPeriod(rule)}`];
      },
    },
    yAxis(x, y, shortTicks(y)),
    xAxis(x, y, shortTicks(x)),
    label(".axis-name.end", x.to, y.from + 32, "rank of the key"),
    label(".axis-name", x.from - 42, y.to - 10, `most units in ${ownPeriod(rule)}`),
    element("clipPath", { id: `above-${id}` }, above),
    // Only in a fixed window the keys above the limit are those over it.
    ranks.length > 0 && !isSwept(rule) &&
      element("path.hit", { d: `M${curve}V${y.from}H${x.from}Z`, "clip-path": `url(#above-${id})` }),
    ranks.length > 0 && line(".curve", `M${curve}`),
    marks.map(([kind, , limit]) => element(`g.mark${kind}`, line("", `M${x.from} ${place(y.at(limit))}H${x.to}`))),
    limitLine,
    // After all lines, and side by side: no line crosses a label where the limits are near each other.
    marks.map(([kind, name, limit]) => element(`g.mark${kind}`,
      label("", x.to - (kind === ".old" ? 100 : 200), y.at(limit) - 4, `${name} ${grouped(limit)}`))),
  );
  const moveTo = (limit) => {
    text.textContent = `limit ${grouped(limit)}`;
    limitLine.setAttribute("transform", `translate(0 ${place(y.at(limit))})`);
    above.setAttribute("height", place(y.at(limit)));
  };
  return { svg, moveTo, numbers: [["Rank", "Units"], () => ranks.map((rank, at) => [rank, units[at]])] };
};

// Name, value and share of keys in percent.
const percentiles = ({ p50, p90, p99, p999, max }) =>
  [["50 %", p50, 50], ["90 %", p90, 90], ["99 %", p99, 99], ["99.9 %", p999, 99.9], ["all", max, 100]];

// The share of keys that stay within a limit. Those that stay within a fixed window never asked for more units in one
// period, so the curve is that of their peaks. Returns the picture, and the function that moves the limit line.
const peaksPicture = (rule, id) => {
  const x = unitScale(rule, [55, 505]);
  const y = linear(0, 100, [255, 62]);
  const points = rule.what_if.points;
  const within = ({ keys_over: over }) => 100 - Math.min(100, ppmOf(over, rule.keys) / 1e4);
  const curve = steps(points.map((point) => [x.at(point.limit), y.at(within(point))]), x.to);
  // Nothing is known below the first limit that was tried.
  const left = isSwept(rule) ? place(x.at(points[0].limit)) : x.from;
  const markLine = ([kind, name, limit], row) => {
    const [at, top] = [x.at(limit), 28 + 13 * row];
    // The label stands on the side that has room.
    const isRight = at > 380;
    return element(`g.mark${kind}${isRight ? ".end" : ""}`, line("", `M${place(at)} ${top + 3}V${y.from}`),
      label("", isRight ? at - 4 : at + 4, top, `${name} ${grouped(limit)}`));
  };
  const text = label("", 0, 54, "");
  const limitLine = element("g.limit", line("", `M0 57V${y.from}`), text);
  const svg = picture(
    {
      kind: "peaks", id, size: [520, 300], x, y,
      title: isSwept(rule) ? `Keys of ${rule.rule} within a limit` : `Distribution of the peaks of the keys of ${rule.rule}`,
      description: `Most units of a key in one period of ${ownPeriod(rule)}. ` +
        `${percentiles(rule.own_peaks).map(([name, peak]) => `${name} of keys: at most ${grouped(peak)}`).join("; ")}.`,
      read: (value) => {
        const { limit, keys_over: over } = points[last(points.map((point) => point.limit), value)];
        const share = shareOf(rule.keys - over, rule.keys);
        return [limit, `${share} of keys stay within ${grouped(limit)}; ${grouped(over)} do not`];
      },
    },
    xAxis(x, y, shortTicks(x)),
    yAxis(x, y, [0, 25, 50, 75, 90, 100].map((tick) => [tick, `${tick} %`])),
    label(".axis-name.end", x.to, y.from + 32, `units in ${ownPeriod(rule)}`),
    label(".axis-name", 13, 14, isSwept(rule) ? "keys never over a limit of" : "keys with a peak of at most"),
    line(".under", `M${left} ${y.from}L${curve}V${y.from}Z`),
    line(".curve", isSwept(rule) ? `M${left} ${y.from}L${curve}` : `M${curve}`),
    !isSwept(rule) && percentiles(rule.own_peaks).map(([name, peak, percent]) =>
      element("circle.percentile", { cx: place(x.at(peak)), cy: place(y.at(percent)), r: 3.5 },
        element("title", `${name}: ${grouped(peak)}`))),
    marksOf(rule).map(markLine),
    limitLine,
  );
  const moveTo = (limit) => {
    text.textContent = `limit ${grouped(limit)}`;
    limitLine.setAttribute("transform", `translate(${place(x.at(limit))} 0)`);
  };
  const hasGood = points[0].good_denied !== null;
  const numbers = [
    ["Limit", "Requests over", ...(hasGood ? ["Good over"] : []), "Keys over"],
    () => points.map((point) => [point.limit, point.denied, ...(hasGood ? [point.good_denied] : []), point.keys_over]),
  ];
  return { svg, moveTo, numbers };
};

// Counts over time: `lists` are pairs of a name and a list with a count for each step.
const overTime = ({ start_us: startUs, step_s: step }, lists) => {
  const start = startUs / 1e6;
  return { start, step, lists, end: start + step * (lists[0]?.[1].length ?? 0) };
};

// Distances of two labels, in seconds.
const TIME_STEPS = [
  60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000,
];
// Labels at round times of the day, at most about eight: the day at midnight, else hours and minutes.
const timeTicks = ({ start, end }) => {
  const step = TIME_STEPS.find((step) => (end - start) / step <= 8) ?? TIME_STEPS.at(-1);
  const text = (at) => (at % 86_400 === 0 ? time(at * 1e6).slice(5, 10) : time(at * 1e6).slice(11, 16));
  return multiples(step, start, end).slice(0, 9).map((at) => [at, text(at)]);
};

// The frame of a picture over time; `draw` draws what is in it, `shown` is what the pointer reads.
const timePicture = (kind, id, title, columns, most, draw, shown = columns.lists) => {
  const { start, step, end, lists } = columns;
  const x = linear(start, end, [50, 1_030]);
  const y = linear(0, most, [165, 24]);
  const sums = lists.map(([name, counts]) =>
    `${name}: ${grouped(sum(counts))} in all, at most ${grouped(largest(counts))} in one column`);
  const read = (value) => {
    const at = Math.min(lists[0][1].length - 1, Math.max(0, Math.floor((value - start) / step)));
    const counts = shown.map(([name, counts]) => `${name}: ${grouped(counts[at])}`);
    return [start + (at + 0.5) * step, `${time((start + at * step) * 1e6).slice(0, 16)} UTC. ${counts.join(". ")}`];
  };
  const description = `From ${time(start * 1e6)} to ${time(end * 1e6)} UTC. ${sums.join("; ")}.`;
  return picture({ kind, id, title, description, size: [1_060, 200], x, y, read },
    yAxis(x, y, shortTicks(y)), xAxis(x, y, timeTicks(columns)), draw(x, y));
};
const curveOf = ({ start, step }, counts, x, y) =>
  steps(counts.map((count, at) => [x.at(start + step * at), y.at(count)]), x.to);
// The area between two lists: there along the upper one, back along the lower one.
const area = (kind, columns, above, below, x, y) => {
  if (above.every((count, at) => count === below[at])) return null;
  const { start, step } = columns;
  const back = below.map((count, at) => [x.at(start + step * (at + 1)), y.at(count)]).reverse();
  return line(`.area${kind}`, `M${curveOf(columns, above, x, y)}L${steps(back, x.from)}Z`);
};

// Requests over the judged limit as an area, over the limit in force as a line: one request can be over both, so the
// two are not stacked.
const rulePicture = (rule, id, columns) => {
  const [, over, inForce] = columns.lists.map(([, counts]) => counts);
  const title = `Requests over the limit of ${rule.rule} per ${period(columns.step)}`;
  return timePicture("time", id, title, columns, largest([...over, ...(inForce ?? [])]), (x, y) => [
    area(".over", columns, over, over.map(() => 0), x, y),
    inForce && line(".line.old", `M${curveOf(columns, inForce, x, y)}`),
  ]);
};

// Denied requests: by both rule sets, above them by the new rules only, above them by the rules in force only.
const comparisonPicture = (columns) => {
  const tops = [columns.lists[0][1].map(() => 0)];
  for (const [, counts] of columns.lists) tops.push(tops.at(-1).map((top, at) => top + counts[at]));
  const title = `Denied requests per ${period(columns.step)}, by rule set`;
  return timePicture("both", 0, title, columns, largest(tops.at(-1)), (x, y) =>
    [".both", ".over", ".old"].map((kind, at) => area(kind, columns, tops[at + 1], tops[at], x, y)));
};

// A line for each list, each summed up from the start.
const sumsPicture = (id, title, columns) => {
  const summed = columns.lists.map(([name, counts]) => {
    let all = 0;
    return [name, counts.map((count) => (all += count))];
  });
  const most = largest(summed.flatMap(([, counts]) => counts));
  const draw = (x, y) => summed.map(([, counts], at) => line(`.line.a${at % 6}`, `M${curveOf(columns, counts, x, y)}`));
  return timePicture("sums", id, title, columns, most, draw, summed);
};
