// The last 15 minutes: what was denied at the bottom, all requests above it.
let scale = null;
const niceStep = (most) => {
  for (let unit = 1; ; unit *= 10) for (const part of [1, 2, 5]) if (part * unit >= most) return part * unit;
};
const sums = (one, other) => one.map((n, i) => n + other[i]);
const chart = () => {
  const box = $("chart"), { series, end, marks } = state, count = series.requests.length, start = end - count, left = 44, right = (box.clientWidth || 1300) - 4, top = 18, bottom = (box.clientHeight || 152) - 20;
  // Draws at least a minute, even if the process is younger.
  const from = end - Math.max(count, 60), x = (time) => left + ((Math.max(time, from) - from) / (end - from)) * (right - left);
  const label = (at, y, text, anchor, kind) => el("text", { x: fix(at), y, "text-anchor": anchor, class: kind }, text);
  const line = (kind, d) => el("path", { class: kind, d });
  const rule = ruleOf(chosen), none = series.requests.map(() => 0);
  // The last step may have just begun: uses the rate instead.
  const seconds = (steps, now) => none.map((_, i) => { const step = Math.floor((count - 1 - i) / 10); return step ? (steps.at(-1 - step) ?? 0) / 10 : now; });
  const [asked, denied, failed, policy, shadow] = !rule ? CLASSES.map((name) => series[name].map(Number))
    : [seconds(rule.spark_asked, rule.asked), ...(isShadow(rule) ? [none, none, none, seconds(rule.spark, rule.denied)] : [seconds(rule.spark, rule.denied), none, none, none])];
  const highest = Math.max(1, ...asked, ...shadow), step = niceStep(highest / 3), most = step * Math.ceil(highest / step), parts = [];
  // Keeps a few denials visible among many requests.
  const seen = denied.map((n) => n && Math.max(n, most / 60)), bad = sums(seen, failed), notOk = sums(bad, policy);
  const y = (n) => bottom - (Math.min(n, most) / most) * (bottom - top), along = (list) => list.map((n, i) => `${fix(x(start + i + 0.5))} ${fix(y(n))}`);
  const area = (kind, above, below) => line(kind, `M${along(above).join("L")}L${along(below).reverse().join("L")}Z`);
  for (let tick = 0; tick <= most; tick += step) parts.push(line("grid", `M${left} ${Math.round(y(tick)) + 0.5}H${right}`), label(left - 6, y(tick) + 4, short(tick), "end"));
  const gap = 60 * Math.ceil((end - from) / 300);
  for (let tick = Math.ceil(from / gap) * gap; tick < end; tick += gap) {
    const at = Math.round(x(tick)) + 0.5, isLast = at > right - 30;
    parts.push(line("grid", `M${at} ${top}V${bottom}`), label(isLast ? right : at, bottom + 16, clock(tick).slice(0, 5), isLast ? "end" : "middle"));
  }
  if (count) {
    parts.push(area("a-ok", asked, notOk), area("a-policy", notOk, bad), area("a-failed", bad, seen), area("a-over", seen, none));
    if (total(shadow)) parts.push(line("l-shadow", `M${along(shadow).join("L")}`));
  }
  let free = 0;
  for (const { at, until, level, text } of marks.filter((mark) => (mark.until ?? mark.at) >= from)) {
    const begin = x(at), width = 7 * text.length, isLast = begin + width > right, place = isLast ? right - width : begin;
    parts.push(until ? el("rect.span", { x: fix(begin), y: top, width: fix(Math.max(3, x(until) - begin)), height: bottom - top }) : line("mark", `M${fix(begin)} ${top - 4}V${bottom}`));
    if (place >= free) { parts.push(label(isLast ? right : begin, 12, text, isLast ? "end" : "start", `name ${level}`)); free = place + width + 10; }
  }
  fill("chart", parts);
  fill("time-h", count < SECONDS ? `Last ${lasting(count)}` : "Last 15 minutes");
  fill("time-of", rule ? `decisions per second of ${rule.rule}` : "requests per second");
  const rows = [["OK", "ok", asked.map((n, i) => n - denied[i] - failed[i] - policy[i])], ["denied", "over", denied], ["no decision", "failed", failed], ["by failure policy", "policy", policy], ["would deny", "shadow", shadow]];
  fill("legend", rows.map(([name, kind, list]) => (total(list) ? el("span", { class: `key ${kind}` }, name) : "")));
  scale = { from, start, span: (end - from) / (right - left), left, rows };
};
// Describes what is under the pointer.
const point = ({ type, clientX, clientY }) => {
  if (!scale) return;
  const tip = $("tip"), { from, start, span, left, rows } = scale, time = Math.floor(from + (clientX - $("chart").getBoundingClientRect().left - left) * span), i = time - start;
  tip.hidden = type === "pointerleave" || rows[0][2][i] === undefined;
  if (tip.hidden) return;
  fill("tip", [`${clock(time)} UTC`, ...rows.filter(([, , list], n) => n < 2 || list[i]).map(([name, , list]) => `${name} ${rate(list[i])}/s`)].join("\n"));
  tip.style.left = `${Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${clientY + 16}px`;
};
