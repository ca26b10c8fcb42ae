// The last 15 minutes: requests in four classes above, what was not admitted on its own scale below.
let scale = null;
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300];
const niceStep = (most) => {
  for (let unit = 1; ; unit *= 10) for (const part of [1, 2, 5]) if (part * unit >= most) return part * unit;
};
const sums = (one, other) => one.map((n, i) => n + other[i]);
const chart = () => {
  const { series, end, marks } = state, count = series.requests.length, start = end - count, left = 44, right = ($("chart").clientWidth || 1300) - 6;
  // A young process has few seconds; a minute is the least that is drawn.
  const from = end - Math.max(count, 60), x = (time) => left + ((Math.max(time, from) - from) / (end - from)) * (right - left);
  const label = (at, y, text, anchor, kind) => el("text", { x: fix(at), y, "text-anchor": anchor, class: kind }, text);
  const line = (kind, d) => el("path", { class: kind, d });
  const rule = ruleOf(chosen), none = series.requests.map(() => 0);
  // The last step may have begun just now: the rate stands for it.
  const seconds = (steps, now) => none.map((_, i) => { const step = Math.floor((count - 1 - i) / 10); return step ? (steps.at(-1 - step) ?? 0) / 10 : now; });
  const [asked, denied, failed, policy, shadow] = !rule ? CLASSES.map((name) => series[name].map(Number))
    : [seconds(rule.spark_asked, rule.asked), ...(isShadow(rule) ? [none, none, none, seconds(rule.spark, rule.denied)] : [seconds(rule.spark, rule.denied), none, none, none])];
  const bad = sums(denied, failed), notOk = sums(bad, policy);
  const panel = (top, bottom, lists) => {
    const highest = Math.max(1, ...lists.flat()), step = niceStep(highest / 3), most = step * Math.ceil(highest / step), grid = [];
    const y = (n) => bottom - (n / most) * (bottom - top), along = (list) => list.map((n, i) => `${fix(x(start + i + 0.5))} ${fix(y(n))}`);
    for (let tick = 0; tick <= most; tick += step) grid.push(line("grid", `M${left} ${Math.round(y(tick)) + 0.5}H${right}`), label(left - 6, y(tick) + 4, short(tick), "end"));
    const area = (kind, above, below) => line(kind, `M${along(above).join("L")}L${along(below).reverse().join("L")}Z`);
    return { top, bottom, grid, along, area };
  };
  const panels = [panel(20, 124, [asked]), panel(150, 262, [bad, shadow])], [upper, lower] = panels, parts = panels.flatMap(({ grid }) => grid);
  const gap = STEPS.find((step) => (step / (end - from)) * (right - left) >= 90) ?? 300;
  for (let tick = Math.ceil(from / gap) * gap; tick < end; tick += gap) {
    const at = Math.round(x(tick)) + 0.5;
    parts.push(...panels.map(({ top, bottom }) => line("grid", `M${at} ${top}V${bottom}`)), label(Math.min(at, right - 16), 278, clock(tick).slice(0, gap < 60 ? 8 : 5), "middle"));
  }
  let free = 0;
  for (const { at, until, level, text } of marks.filter((mark) => (mark.until ?? mark.at) >= from)) {
    const begin = x(at), width = 6.6 * text.length, place = Math.min(begin, right - width);
    if (until) parts.push(...panels.map(({ top, bottom }) => el("rect.span", { x: fix(begin), y: top, width: fix(Math.max(3, x(until) - begin)), height: bottom - top })));
    else parts.push(line("mark", `M${fix(begin)} 16V262`));
    if (place >= free) { parts.push(label(place, 12, text, "start", `name ${level}`)); free = place + width + 10; }
  }
  if (count) {
    parts.push(upper.area("a-ok", asked, notOk), upper.area("a-policy", notOk, bad), upper.area("a-failed", bad, denied), upper.area("a-over", denied, none), lower.area("a-failed", bad, denied), lower.area("a-over", denied, none));
    if (total(shadow)) parts.push(line("l-shadow", `M${lower.along(shadow).join("L")}`));
  }
  parts.push(label(left, 144, total(bad) + total(shadow) ? "denied and would deny, own scale" : "nothing denied", "start"), el("path.cross", { id: "cross", d: scale?.cross }));
  fill("chart", parts);
  fill("time-of", rule ? `decisions per second of ${rule.rule}` : "requests per second");
  const rows = { OK: sums(asked, notOk.map((n) => -n)), denied, "no decision": failed, "OK by policy": policy, "would deny": shadow };
  scale = { x, from, start, span: (end - from) / (right - left), left, rows, cross: scale?.cross };
};
// Says what is under the pointer.
const point = ({ type, clientX, clientY }) => {
  if (!scale) return;
  const tip = $("tip"), { x, from, start, span, left, rows } = scale, time = Math.floor(from + (clientX - $("chart").getBoundingClientRect().left - left) * span), i = time - start;
  tip.hidden = type === "pointerleave" || rows.OK[i] === undefined;
  scale.cross = tip.hidden ? "" : `M${fix(x(time + 0.5))} 16V262`;
  $("cross").setAttribute("d", scale.cross);
  if (tip.hidden) return;
  fill("tip", [`${clock(time)} UTC`, ...Object.entries(rows).filter(([, list], n) => n < 2 || list[i]).map(([name, list]) => `${name} ${rate(list[i])}/s`)].join("\n"));
  tip.style.left = `${Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${clientY + 16}px`;
};
