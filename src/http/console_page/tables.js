// The rules, and the keys that they deny.
const DRAWN = 100;
const bars = (list, kind, width) => {
  const most = Math.max(...list, 1), step = width / 90, wide = step.toFixed(2), shift = 90 - list.length;
  const d = list.map((n, i) => (n ? `M${fix((i + shift) * step)} 24h${wide}v-${fix(Math.max(1, (n / most) * 22))}h-${wide}z` : "")).join("");
  return el("svg", { class: `bars ${kind}`, width, height: 24 }, el("path.grid", { d: `M0 23.5H${width}` }), el("path", { d }));
};
const number = (...text) => el("td.n", text);
const perSecond = (n, kind) => number(n > 0 ? bold(rate(n), kind) : soft("0"));
const emptyRow = (text) => el("tr", el("td.soft", { colspan: 6 }, text));
const rowHead = (text, below, ...more) => el("th", { scope: "row" }, text, more, el("span.sub", below));

const TABS = {
  denying: ["Denying", (rule) => !isShadow(rule) && rule.denied_15m],
  shadow: ["Would deny", (rule) => isShadow(rule) && rule.denied_15m],
  busy: ["With traffic", (rule) => rule.asked_15m],
  idle: ["No request", (rule) => !rule.asked_15m],
};
const needle = () => $("filter").value.trim().toLowerCase();
// The stream's rules, and the fetched ones that the stream leaves out: their numbers do not change, so they are fetched again.
const isFetched = (seconds) => fetched?.generation === state.rules.generation && Math.abs(state.end - fetched.at) < seconds;
const knownRules = () => [...state.rules.list, ...(isFetched(60) ? fetched.list.filter((rule) => !ruleOf(rule.id)) : [])];
const ruleRow = (rule) => {
  const kind = tone(rule), isOn = rule.id === chosen, { asked, denied, denied_15m } = rule;
  return el("tr", { class: isOn && "on", "data-do": "rule", "data-key": rule.id },
    rowHead(el("button", { "aria-pressed": `${isOn}` }, code(rule.rule)), `domain ${rule.domain}`, rule.kind !== "enforced" && [" ", el("span.badge", rule.kind)]),
    el("td", rule.limit, el("span.sub", rule.how)), number(rate(asked)), perSecond(denied, kind),
    el("td", { class: `n ${denied ? kind : "soft"}` }, percent(denied, asked)),
    el("td.wide", denied_15m ? bars(rule.spark, kind, 135) : bars(rule.spark_asked, "soft", 135)), number(grouped(denied_15m)), number(since(rule)));
};
const ruleTable = () => {
  const { total: all, idle, list: sent, generation } = state.rules, known = knownRules(), text = needle(), isCut = known.length < all - idle;
  fill("tabs", Object.entries(TABS).map(([name, [title, isIn]]) => {
    const count = name === "idle" ? idle : name === "busy" ? all - idle : known.filter(isIn).length;
    return el("button", { "aria-pressed": `${name === tab}`, "data-do": "tab", "data-key": name }, `${title} ${grouped(count)}${isCut && name !== "busy" && isIn(sent.at(-1)) ? "+" : ""}`);
  }));
  // A filter searches all tabs: the user may not know a name's tab.
  const list = known.filter((rule) => (text ? `${rule.domain} ${rule.rule} ${rule.limit}`.toLowerCase().includes(text) : TABS[tab][1](rule)));
  if (known.length < all && (text ? !list.length : tab === "idle" || (isCut && tab === "busy")) && !isFetched(50)) {
    const now = fetched = { generation, at: state.end, list: known };
    call("/console/state?rules=all").then(({ rules }) => { now.list = rules.list; }, ({ message }) => { now.list = []; say(message); }).then(show);
  }
  list.sort((a, b) => b.denied - a.denied || b.denied_15m - a.denied_15m || b.asked - a.asked);
  const rows = list.slice(0, DRAWN);
  patch($("rule-table").tBodies[0], rows.map(ruleRow));
  fill("rule-note", !all ? "There are no rules." : !rows[0] ? "No rule." : list.length > DRAWN ? `The first ${DRAWN} of ${grouped(list.length)}: filter for the others.` : "",
    rows.every((rule) => ruleOf(rule.id)) ? "" : ` Rows beyond the first ${sent.length} are those of ${clock(fetched.at)}.`);
};

const keyRow = (key) => {
  const rule = ruleOf(key.rule), kind = tone(rule), found = looks.get(key.id);
  const row = el("tr", { "data-key": key.id },
    rowHead(code(shownText(key)), `${rule?.rule ?? ""}${key.limit ? `, ${key.limit}` : ""}${isShadow(rule) ? " (shadow)" : ""}${key.secret ? " (secret)" : ""}`, key.exception && excepted(key.exception)), perSecond(key.denied, kind),
    number(rule?.denied ? percent(Math.min(key.denied, rule.denied), rule.denied) : "–"), number(`≥ ${grouped(key.denied_15m)}`), el("td.wide", bars(key.spark, kind, 90)),
    number(button("look", found ? "Close" : "Look"), " ", button("reset", "Reset…"), state.live && [" ", button("except", "Except…")]));
  return found ? [row, el("tr.look", { "data-key": `look ${key.id}` }, el("td", { colspan: 6 }, found.name ? counter(found, 1, !isShadow(rule) && !key.exception) : found))] : [row];
};
const keyTable = () => {
  const text = needle(), list = state.keys.filter((key) => (chosen === null || key.rule === chosen) && `${shownText(key)} ${ruleOf(key.rule)?.rule}`.toLowerCase().includes(text)), rows = list.slice(0, chosen === null && !text ? 10 : DRAWN);
  const rowsOf = (kind, verb, done) => { const { rows, requests_15m } = state.exceptions[kind]; return rows || requests_15m ? badge(kind, `${plural(rows, "row")} ${verb}${rows === 1 ? "s" : ""}: ${grouped(requests_15m)} ${done} in 15 min`) : ""; };
  fill("rows", rowsOf("block", "block", "denied"), " ", rowsOf("exempt", "exempt", "admitted"));
  fill("who-of", `${ruleOf(chosen)?.rule ?? "all rules"}${list.length > rows.length ? `, the first ${rows.length} of ${list.length}` : ""}`);
  patch($("key-table").tBodies[0], rows[0] ? rows.flatMap(keyRow) : emptyRow(state.keys[0] ? "No matching key." : "No key was over a limit."));
};

// Exceptions set while the process runs: fetched when their version changes, every five seconds at most.
const SIGNS = { block: "block", exempt: "exempt", limit: "limit", multiplier: "×", add: "+", tier: "tier", shadow_mode: "shadow mode" };
const effects = (row) => Object.keys(SIGNS).filter((name) => name in row).map((name) => badge(name, `${SIGNS[name]}${row[name] === true ? "" : ` ${row[name]}`}`));
const isAutomatic = ({ origin }) => /penalty|feedback/.test(origin);
const secondsOf = (time) => Date.parse(time) / 1000;
const liveRow = ({ id, origin, row }) => el("tr", { "data-key": id },
  rowHead(code(`${row.key}=${row.value}`), [`domain ${row.domain}`, row.path, row.limit_name, `row ${id}`].filter(Boolean).join(", ")), el("td", effects(row)), el("td", row.until ? day(secondsOf(row.until)) : "permanent", secondsOf(row.from) > state.end && el("span.sub", `from ${day(secondsOf(row.from))}`)),
  el("td", row.reason, row.by && el("span.sub", `by ${row.by}`)), el("td", origin), number(button("remove", "Remove…", id)));
const liveTable = () => {
  const { live, end } = state, isEmpty = !live?.text;
  $("live-rows").hidden = isEmpty;
  if (isEmpty) return;
  if (listed.version !== live.version && Math.abs(end - listed.at) >= 5) {
    Object.assign(listed, { version: live.version, at: end });
    call("/exceptions/list", { limit: 1000 }).then(({ rows, more }) => Object.assign(listed, { rows, more, wrong: "" }), ({ message }) => Object.assign(listed, { version: null, wrong: message })).then(show);
  }
  // Operators' rows first, then the newest.
  const all = listed.rows.filter(({ row }) => !row.until || secondsOf(row.until) > end).sort((a, b) => isAutomatic(a) - isAutomatic(b) || b.version - a.version), rows = all.slice(0, DRAWN);
  fill("live-of", live.text);
  patch($("live-table").tBodies[0], rows[0] ? rows.map(liveRow) : emptyRow("…"));
  fill("live-note", listed.wrong, all[DRAWN] || listed.more ? ["The first ", rows.length, ". All of them: ", code("ratelimitctl exceptions list")] : "", live.source === "process" ? " Active in this process only, until it ends." : "");
};
