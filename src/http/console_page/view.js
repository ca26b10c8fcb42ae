// The service's state, and the selection on this page.
let state = null, fetched = null, chosen = null, tab = "denying", isPaused = false, isPressed = false;
const CLASSES = ["requests", "denied", "failed", "policy", "shadow"];
let moved = null, spoken = "";
const looks = new Map(), values = new Map(), listed = { at: 0, rows: [], wrong: "" };
const mean = (name, seconds = 5) => {
  const list = state.series[name].slice(-seconds);
  return total(list) / Math.max(list.length, 1);
};
const find = (list, id) => list.find((row) => row.id === id);
const ruleOf = (id) => find(state.rules.list, id);
const keyOf = (id) => find(state.keys, id);
const liveOf = (id) => find(listed.rows, id);
const keyText = (key) => key.entries.map((entry) => entry.join("=")).join(" ");
const shownText = (key) => keyText(values.get(key.id) ?? key);
const WORDS = { block: "blocked", exempt: "exempt", shadow_mode: "shadow mode" };
const day = (seconds) => (seconds - state.end < 86400 ? clock(seconds) : new Date(seconds * 1000).toISOString().slice(0, 10));
const excepted = ({ kind, row, until }) => badge(kind, `${WORDS[kind] ?? "limit changed"}${until ? ` until ${day(until)}` : ""}${row ? ` (${row})` : ""}`);
const since = (rule) => (rule.since === null ? "–" : rule.since < state.end - 890 ? "> 15 min" : clock(rule.since));
const isShadow = (rule) => rule?.kind === "shadow";
const tone = (rule) => (isShadow(rule) ? "violet" : "red");

// The sentence: one line. Notices show any other problem, and the table shows the key.
const sentence = () => {
  const { list } = state.rules, [asked, denied] = CLASSES.map((name) => mean(name));
  if (!state.rules.generation) return [bold("No rules are active.", "red")];
  if (asked < 0.05) return ["No requests."];
  if (denied < 0.05) return [bold(`${rate(asked)} requests/s`), ", none denied."];
  const denying = list.filter((rule) => !isShadow(rule) && rule.denied > 0).sort((a, b) => b.denied - a.denied), [worst] = denying;
  const time = worst ? since(worst) : "–", begun = time === "–" ? "" : time[0] === ">" ? " for more than 15 minutes" : ` since ${time}`;
  return [bold(`${rate(denied)} of ${rate(asked)} requests/s are denied (${percent(denied, asked)})`, "red"),
    worst ? el("span.more", `${begun}, ${percent(worst.denied, total(denying.map((rule) => rule.denied)))} of them by `, code(worst.rule)) : ""];
};

const tiles = () => {
  const { store, series } = state;
  const tile = (label, kind, main, unit, below) => el("div", el("dt", label), el("dd", bold(main, main === "0" ? "soft" : kind), el("small", ` ${unit}`), el("br"), el("small", below)));
  const counted = (label, name, kind, below = `${grouped(total(series[name]))} in 15 min`) => tile(label, kind, rate(mean(name)), "/s", below);
  return [
    counted("Requests", "requests", ""), counted("Denied", "denied", "red", percent(mean("denied"), mean("requests"))), counted("Would deny (shadow)", "shadow", "violet"),
    counted("By failure policy", "policy", "brown"), counted("No decision", "failed", "red"),
    tile("Call, p99", "", micros(series.p99_us.at(-1)), "", `p50 ${micros(series.p50_us.at(-1))}`),
    ...(store.kind !== "redis" ? [] : [store.answers ? tile("Redis, p99", "", micros(series.store_p99_us.at(-1)), "", `p50 ${micros(store.p50_us)}`)
      : tile("Redis", "red", "unavailable", "", store.last_outage ? `since ${clock(store.last_outage.at)}` : "")]),
  ];
};

const cards = () => {
  const { store, rules, unlimited: open } = state, { rejected } = rules, outage = store.last_outage;
  const card = (id, title, level, text, rows) => fill(id, el("div.head", el("h2", title), el("span", { class: `dot right ${level}` }, text)), el("dl", rows.map(([name, ...value]) => [el("dt", name), el("dd", value)])));
  $("store").hidden = store.kind === "memory";
  card("store", "Redis", store.answers ? "" : "bad", store.answers ? "answers" : "does not answer", [
    ["Waiting", `${plural(store.queue, "request")}${store.batch ? `, batches of ${store.batch}` : ""}`],
    ["Circuit breakers", `${store.breakers_open} of ${store.breakers} open`],
    ["Deny cache", `${rate(store.deny_hits)}/s denied without Redis`],
    ["Server", store.server ?? "–"],
    ["Last outage", outage ? `${clock(outage.at)}, ${lasting(outage.seconds)}: ${outage.error}` : "none"],
  ]);
  card("in-force", "Active rules", rejected ? "wait" : "", rejected ? "newer rules rejected" : "up to date", [
    ["Since", `${clock(rules.loaded_at)}, changed ${plural(Math.max(0, rules.generation - 1), "time")} since startup`],
    ["Limits", `${grouped(rules.total)} in ${plural(rules.files, "file")}, ${plural(rules.domains, "domain")}`],
    ...(rejected?.problems.map((problem, i) => [i ? "" : `Rejected ${clock(rejected.at)}`, code(problem)]) ?? []),
    ["Warnings", rules.warnings],
  ]);
  const isOdd = open.domains[0] || open.evictions || open.shadow_mode;
  card("unlimited", "Not limited", isOdd ? "wait" : "", isOdd ? "check this" : "no problem", [
    ["No matching limit", `${rate(open.without_limit)}/s (${percent(open.without_limit, mean("requests", 10))})`],
    ...open.names.map(([names, n]) => ["", code(names), ` ${rate(n)}/s`]),
    ["Unknown domain", `${rate(open.unknown_domain)}/s `, code(open.domains.join(", "))],
    ["Evictions", `${plural(open.evictions, "counter")} in a minute`],
  ]);
};

const bar = () => {
  const { live, instance: { name, version, started_at, reasons, dashboard_url, fleet } } = state;
  fill("instance", name);
  fill("about", `${version} · up ${lasting(state.end - started_at)} · ${clock(state.end)} UTC`);
  fill("fleet", dashboard_url ? el("a", { href: dashboard_url }, fleet || "All instances") : fleet);
  fill("ready", reasons[0] ? `not ready: ${reasons.join(", ")}` : "ready");
  $("ready").className = `dot ${!reasons[0] ? "" : reasons.every((reason) => reason === "draining") ? "wait" : "bad"}`;
  fill("reveal", values.size ? "Hide values" : "Show values…");
  fill("key-note", `Values are ${values.size ? "shown in this tab only" : "masked"}, numbers are lower bounds. `, live ? live.text && el("a", { href: "#live-rows" }, live.text) : ["To block, exempt or raise one key, set ", code("exceptions.redis"), "."]);
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
  chart(); ruleTable(); keyTable(); liveTable(); cards();
  // A moved row has lost the focus.
  if (focused !== page.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  // Notifies screen readers when the words change, not every second.
  const words = $("verdict").textContent.replace(/[\d.,<]/g, "");
  if (words !== spoken) { spoken = words; say($("verdict").textContent); }
};
const say = (text) => fill("status", text);
const summary = () => [
  `${state.instance.name} at ${clock(state.end)} UTC: ${el("p", sentence()).textContent}`,
  ...state.notices.map(({ title, text }) => `  ${title} ${text}`),
  ...state.rules.list.filter(TABS.denying[1]).slice(0, 5).map((rule) => `  ${rule.rule} (${rule.limit}): ${rate(rule.denied)}/s of ${rate(rule.asked)}/s denied, ${grouped(rule.denied_15m)} in 15 min`),
  ...state.keys.slice(0, 5).map((key) => `  ${keyText(key)}: ${rate(key.denied)}/s by ${ruleOf(key.rule)?.rule}${key.exception ? `, ${excepted(key.exception).textContent}` : ""}`),
].join("\n");
