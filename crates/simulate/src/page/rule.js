// The section of one rule: what is recommended, the slider, and the pictures.

// `100 per 1 min, gcra, burst 10`.
const limitText = (rule) => {
  const burst = rule.burst === rule.limit ? "" : `, burst ${grouped(rule.burst)}`;
  const reserve = rule.reserve === null ? "" : `, reserve ${grouped(rule.reserve)}`;
  return `${grouped(rule.limit)} per ${ownPeriod(rule)}, ${rule.algorithm}${burst}${reserve}`;
};

// What a reader must know about a rule beside its numbers.
const badges = (rule) => [
  rule.shadow && [" ", element("span.badge", { title: "shadow_mode: its denials deny nothing" }, "shadow")],
  rule.announces && [" ", element("span.badge", { title: "on_over: announce: it denies nothing" }, "announces")],
  !rule.is_resolved && [" ", element("span.badge.red",
    { title: "The period has fewer than ten ticks of the log’s clock" }, "clock too coarse")],
];

// `, with the burst of 20`: what all points of the curve have.
const withBurst = ({ what_if: { held_burst: burst } }) => (burst === null ? "" : `, with the burst of ${grouped(burst)}`);

const recommendation = (rule) => {
  const found = rule.recommendation;
  if (!found) return null;
  if (found.no_recommendation !== null) return element("p", `No recommendation${withBurst(rule)}: ${found.no_recommendation}.`);
  const high = found.needed_high === null ? "more than was tried" : grouped(found.needed_high);
  return element("p.recommendation", "Recommended: ", strong(`${grouped(found.limit)} per ${ownPeriod(rule)}`),
    `${withBurst(rule)}. ${grouped(found.needed)} is the smallest limit ${isSwept(rule) ? "of those that were tried " : ""}` +
    `(95 % interval ${grouped(found.needed_low)} to ${high}) with at most ${percent(found.max_keys_ppm)} % of keys over it ` +
    `and at most ${percent(found.max_good_denied_ppm)} % of good requests denied; head-room makes it at least ` +
    `${found.headroom_percent} %.`);
};

// Which of the keys most often over the judged limit would be hit by another one.
const whom = (rule, limit) => {
  // A key without `kept_limit` exceeds all limits of the slider.
  const kept = (key) => (isSwept(rule) ? key.kept_limit ?? Infinity : key.own_peak);
  const known = rule.top_denied.slice(0, 10).filter((key) => key.own_peak !== null);
  if (!known.length) return "";
  const hit = known.filter((key) => kept(key) > limit).map((key) => cut(key.key));
  const more = hit.length > 5 ? ` and ${hit.length - 5} more` : "";
  const named = hit.length ? `: ${hit.slice(0, 5).join(", ")}${more}` : "";
  return `Of the ${counted(known.length, "key")} most often over the judged limit, ${hit.length} would be hit${named}`;
};

// The slider stands on the points of the curve, so that every number it shows was counted. It moves the limit line in
// the pictures.
const slider = (rule, id, pictures) => {
  const points = rule.what_if.points;
  const start = last(points.map((point) => point.limit), rule.limit);
  const input = element("input", { type: "range", id: `slider-${id}`, min: 0, max: points.length - 1, step: 1,
    value: start, "aria-describedby": `effect-${id}` });
  const effect = element("output", { id: `effect-${id}`, for: `slider-${id}`, "aria-live": "polite" });
  const hit = element("p.whom");
  const show = (at) => {
    const { limit, denied, good_denied: good, keys_over: keys } = points[at];
    input.value = at;
    input.setAttribute("aria-valuetext", `${grouped(limit)} per ${ownPeriod(rule)}`);
    effect.replaceChildren(bold(grouped(limit)), ` per ${ownPeriod(rule)}: `, bold(counted(denied, "request")),
      ` over it (${shareOf(denied, rule.asked)})${good === null ? "" : `, ${grouped(good)} of them good`}; `,
      bold(counted(keys, "key")), ` hit of ${grouped(rule.keys)}`);
    hit.textContent = whom(rule, limit);
    for (const { moveTo } of pictures) moveTo(limit);
  };
  input.addEventListener("input", () => show(Number(input.value)));
  const marks = [["judged", rule.limit], ["current", unitsInForce(rule)], ["recommended", recommended(rule)]];
  const buttons = marks.map(([name, limit]) => {
    const at = points.findIndex((point) => point.limit === limit);
    if (at < 0) return null;
    const button = element("button", { type: "button" }, `${name} ${grouped(limit)}`);
    button.addEventListener("click", () => show(at));
    return button;
  });
  show(start);
  return element("div.what-if",
    element("div.controls",
      element("label", { for: `slider-${id}` }, `What if the limit per ${ownPeriod(rule)} were`), input,
      element("span.marks", "Move to the limit ", buttons)),
    effect, hit,
    isSwept(rule) && note(`Each limit was decided as ${rule.algorithm} of its own${withBurst(rule)}.`),
    !rule.what_if.is_exact && note("An approximation: the curve is of this limit alone. The rule was over the limit in " +
      `${counted(rule.over, "request")} when all rules were decided together.`));
};

// Percentiles of the peaks for windows of all lengths; the limit's own period first.
const peaksTable = (rule) => {
  const others = rule.peaks.filter((peaks) => peaks.window_s !== rule.period_s);
  const rows = [[`${ownPeriod(rule)} (the limit’s period)`, rule.own_peaks],
    ...others.map((peaks) => [period(peaks.window_s), peaks])];
  const columns = percentiles(rule.own_peaks).map(([name], at) =>
    numberColumn(name, ([, peaks]) => grouped(percentiles(peaks)[at][1])));
  return scrolling(`Peaks of keys of ${rule.rule}`, table({ class: "peaks" },
    "Most units of a key in one window: the value that this share of keys does not exceed",
    [textColumn("Window", ([name]) => name), ...columns], rows));
};

const columnsOf = ({ timeline }) => overTime(timeline, [["Requests", timeline.asked], ["Over the limit", timeline.over],
  ...(timeline.old_over.length ? [["Over the current limit", timeline.old_over]] : [])]);

const timeFigure = (rule, id) => {
  const columns = columnsOf(rule);
  const { start, step, lists } = columns;
  const legend = [key(".over", "these rules"), lists.length > 2 && key(".old.line", "current rules"),
    element("span", "times in UTC")];
  const rows = () => rule.timeline.over.map((_, at) =>
    [time((start + at * step) * 1e6).slice(0, 16), ...lists.map(([, counts]) => counts[at])]);
  return figure(`Requests over the limit per ${period(step)}`, rulePicture(rule, id, columns), legend,
    [["Time (UTC)", ...lists.map(([name]) => name)], rows]);
};

// A row for each day of the week, a cell for each hour; null is an hour that the log does not have.
const heatMap = (rule, { span_s: seconds, over }) => {
  const most = Math.max(1, largest(over));
  const compact = Intl.NumberFormat("en", { notation: "compact" });
  const cell = (count) =>
    count === null ? element("td") : element(`td.h${Math.ceil((count * 6) / most)}`, compact.format(count));
  const head = ["Day", ...Array(24).keys()].map((name) => element("th", { scope: "col" }, String(name)));
  const rows = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map((day, at) =>
    element("tr", element("th", { scope: "row" }, day), over.slice(at * 24, at * 24 + 24).map(cell)));
  const caption = `Requests over the limit by weekday and hour (UTC), summed over ${span(seconds * 1e6)}`;
  return scrolling(`Requests over the limit of ${rule.rule} by weekday and hour`,
    element("table.heat", element("caption", caption), element("thead", element("tr", head)), element("tbody", rows)));
};

const ruleSection = (rule, heat, id) => {
  const demand = demandPicture(rule, id);
  const peaks = rule.what_if.points.length > 0 && peaksPicture(rule, id);
  demand.moveTo(rule.limit);
  const inForce = rule.old && ` · current: ${grouped(rule.old.limit)} per ${period(rule.old.period_s)}, ` +
    `${rule.old.algorithm} (${share(rule.old.over, rule.old.over_share_ppm)} over)`;
  return element("section.rule", { id: `rule-${id}`, "aria-labelledby": `rule-${id}-h` },
    element("h2", { id: `rule-${id}-h` }, rule.rule, badges(rule)),
    // A limit without a name has the path as its label.
    element("p.limit-text", rule.path !== rule.rule && [code(rule.path), " · "], limitText(rule), inForce),
    !rule.is_resolved && element("p.warning",
      "The period has fewer than ten ticks of the log’s clock: do not trust the counts of this rule."),
    recommendation(rule),
    peaks && slider(rule, id, [demand, peaks]),
    element("div.pair",
      figure("Keys by demand", demand.svg, null, demand.numbers),
      peaks && figure(isSwept(rule) ? "Keys within a limit" : "Distribution of peaks", peaks.svg, null, peaks.numbers)),
    peaksTable(rule),
    rule.over === 0 && !rule.old?.over ? element("p", "No request was over this limit.") : timeFigure(rule, id),
    heat && heatMap(rule, heat));
};
