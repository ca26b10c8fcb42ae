// The state of the service, and what is chosen on this page.
let state = null, fetched = null, chosen = null, tab = "denying", isPaused = false, isHeld = false, isPressed = false;
const CLASSES = ["requests", "denied", "failed", "policy", "shadow"];
let order = [], moved = null, spoken = "";
const looks = new Map(), values = new Map();
const mean = (name, seconds = 5) => {
  const list = state.series[name].slice(-seconds);
  return total(list) / Math.max(list.length, 1);
};
const ruleOf = (id) => state.rules.list.find((rule) => rule.id === id);
const keyOf = (id) => state.keys.find((key) => key.id === id);
const keyText = (key) => key.entries.map((entry) => entry.join("=")).join(" ");
const shownText = (key) => keyText(values.get(key.id) ?? key);
const topKey = (rule) => state.keys.find((key) => key.rule === rule.id && key.denied > rule.denied / 2);
const since = (rule) => (rule.since === null ? "–" : rule.since < state.end - 890 ? "> 15 min" : clock(rule.since));
const isShadow = (rule) => rule?.kind === "shadow";
const tone = (rule) => (isShadow(rule) ? "violet" : "red");

// The sentence. In a copy the key stays masked.
const sentence = (text = shownText) => {
  const { store, rules } = state, [asked, denied, failed, policy] = CLASSES.map((name) => mean(name));
  const parts = [];
  if (asked < 0.05) parts.push("No requests. ");
  else if (denied < 0.05) parts.push(bold(`${rate(asked)} requests/s`), ", none denied. ");
  else {
    const denying = rules.list.filter((rule) => !isShadow(rule) && rule.denied > 0).sort((a, b) => b.denied - a.denied), [worst] = denying;
    parts.push(bold(`${rate(denied)} of ${rate(asked)} requests/s are denied (${percent(denied, asked)})`, "red"));
    if (worst) {
      const key = topKey(worst), time = since(worst);
      parts.push(time === "–" ? ". " : time[0] === ">" ? ", for more than 15 minutes. " : `, since ${time}. `, `${percent(worst.denied, total(denying.map((rule) => rule.denied)))} of the denials are by `, code(worst.rule));
      parts.push(...(key ? [`; ${percent(key.denied, worst.denied)} of these are of one key, `, code(text(key))] : ["; no single key has half of these"]));
    }
    parts.push(". ");
  }
  if (policy >= 0.05) parts.push(bold(`${rate(policy)} requests/s are admitted by failure policy. `, "brown"));
  if (failed >= 0.05) parts.push(bold(`${rate(failed)} requests/s get no decision. `, "red"));
  if (state.unlimited.shadow_mode) parts.push(bold("shadow_mode is on. ", "brown"));
  if (!rules.generation) parts.push(bold("There are no rules in force. ", "red"));
  if (store.kind === "memory") parts.push("Counters are in memory.");
  else parts.push(store.answers ? "Redis answers." : bold(`Redis does not answer${store.last_outage ? ` since ${clock(store.last_outage.at)}` : ""}: failure policies decide.`, "red"));
  return parts;
};

const tiles = () => {
  const tile = (label, series, kind, main, unit, below) => {
    const list = state.series[series], points = [];
    for (let i = 0; i < list.length; i += 10) points.push(total(list.slice(i, i + 10)));
    const most = Math.max(...points, 1e-9), step = 100 / Math.max(points.length - 1, 1);
    const d = points.map((n, i) => `${i ? "L" : "M"}${fix(i * step)} ${fix(25 - (n / most) * 22)}`).join("");
    return el("div", { class: main === "0" && "off" }, el("dt", label), el("dd", bold(main, main !== "0" && kind), el("small", ` ${unit}`), el("br"), el("small", below)),
      el("svg", { viewBox: "0 0 100 26", preserveAspectRatio: "none", class: (main !== "0" && kind) || "soft" }, el("path", { d })));
  };
  const counted = (label, series, kind, below = `${grouped(total(state.series[series]))} in 15 min`) => tile(label, series, kind, rate(mean(series)), "/s", below);
  const latency = (label, series, below) => tile(label, series, "", micros(state.series[series].at(-1)), "", below);
  return [
    counted("Requests", "requests", ""), counted("Denied", "denied", "red", percent(mean("denied"), mean("requests"))), counted("Would deny (shadow)", "shadow", "violet"),
    counted("By failure policy", "policy", "brown"), counted("No decision", "failed", "red"),
    latency("Call, p99", "p99_us", `p50 ${micros(state.series.p50_us.at(-1))}`),
    ...(state.store.kind === "redis" ? [latency("Redis, p99", "store_p99_us", `${grouped(state.store.queue)} in the queue`)] : []),
  ];
};

const cards = () => {
  const { store, rules, unlimited: open } = state, { rejected } = rules, outage = store.last_outage;
  const card = (id, title, level, text, rows) => fill(id, el("div.head", el("h2", title), el("span.grow"), el("span", { class: `dot ${level}` }, text)), el("dl", rows.map(([name, ...value]) => [el("dt", name), el("dd", value)])));
  $("store").hidden = store.kind === "memory";
  card("store", "Redis", store.answers ? "" : "bad", store.answers ? "answers" : "does not answer", [
    ["Decision", `p50 ${micros(store.p50_us)}, p99 ${micros(store.p99_us)}`],
    ["Queue", `${grouped(store.queue)} waiting, ${store.batch ?? "–"} requests in a call`],
    ["Breakers", `${store.breakers_open} of ${store.breakers} open`],
    ["Deny cache", `answers ${rate(store.deny_hits)}/s, ${plural(store.deny_keys, "key")}`],
    ["Server", store.server ?? "–"],
    ["Last outage", outage ? `${clock(outage.at)}, ${lasting(outage.seconds)}: ${outage.error}` : "none"],
  ]);
  card("in-force", "Rules in force", rejected ? "wait" : "", rejected ? "newer rules rejected" : "the newest", [
    ["Generation", `${rules.generation}, since ${clock(rules.loaded_at)}`],
    ["Limits", `${grouped(rules.total)} in ${plural(rules.files, "file")}, ${plural(rules.domains, "domain")}`],
    ["In 15 min", `${grouped(rules.total - rules.idle)} met a request, ${grouped(rules.idle)} did not`],
    ...(rejected?.problems.map((problem, i) => [i ? "" : `Rejected ${clock(rejected.at)}`, code(problem)]) ?? []),
    ["Warnings", rules.warnings],
  ]);
  const isOdd = open.domains[0] || open.evictions || open.shadow_mode;
  card("unlimited", "Not limited", isOdd ? "wait" : "", isOdd ? "look at this" : "nothing unusual", [
    ["No limit met", `${rate(open.without_limit)}/s (${percent(open.without_limit, mean("requests", 10))})`],
    ...open.names.map(([names, n]) => ["", code(names), ` ${rate(n)}/s`]),
    ["Unknown domain", `${rate(open.unknown_domain)}/s `, code(open.domains.join(", "))],
    ["shadow_mode", open.shadow_mode ? "on" : "off"],
    ["Evicted counters", `${grouped(open.evictions)} in a minute`],
  ]);
};

const bar = () => {
  const { name, version, started_at, reasons, dashboard_url, exceptions_path } = state.instance;
  fill("instance", name);
  fill("about", `${version} · up ${lasting(state.end - started_at)} · ${clock(state.end)} UTC`);
  fill("fleet", dashboard_url ? el("a", { href: dashboard_url }, "All instances") : "");
  fill("ready", reasons[0] ? `not ready: ${reasons.join(", ")}` : "ready");
  $("ready").className = `dot ${!reasons[0] ? "" : reasons.every((reason) => reason === "draining") ? "wait" : "bad"}`;
  fill("reveal", values.size ? "Hide values" : "Show values…");
  fill("except-note", exceptions_path ? "" : ["To block, exempt or raise one key, set ", code("exceptions.path"), "."]);
  page.title = `${rate(mean("denied"))}/s denied · ${name}`;
};
const show = () => {
  if (!state) return;
  const focused = page.activeElement;
  page.body.classList.remove("empty");
  bar();
  fill("verdict", sentence());
  fill("notices", [moved, ...state.notices].filter(Boolean).map(({ level, title, text, fix }) => el("li", { class: level }, bold(title), ` ${text} `, soft(fix))));
  fill("tiles", tiles());
  chart(); ruleTable(); keyTable(); cards();
  // A row that has moved has lost the focus.
  if (focused !== page.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  // Screen readers are told when the words change, not each second.
  const words = $("verdict").textContent.replace(/[\d.,<]/g, "");
  if (words !== spoken) { spoken = words; say($("verdict").textContent); }
};
const say = (text) => fill("status", text);
const summary = () => [
  `${state.instance.name} at ${clock(state.end)} UTC: ${el("p", sentence(keyText)).textContent}`,
  ...state.notices.map(({ title, text }) => `  ${title} ${text}`),
  ...state.rules.list.filter(TABS.denying[1]).slice(0, 5).map((rule) => `  ${rule.rule} (${rule.limit}): ${rate(rule.denied)}/s of ${rate(rule.asked)}/s denied, ${grouped(rule.denied_15m)} in 15 min`),
].join("\n");
