// The sections of the page: verdict, rules, algorithms, keys, method.

// Characters that turn the line or move a cursor would let a text of a log look like another one.
const HOSTILE = /(?!\n)[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
const shown = (_, value) => (typeof value === "string" ? value.replace(HOSTILE, "\ufffd") : value);
const { report, sections } = JSON.parse(document.getElementById("data").textContent, shown);
const { totals, comparison, method, rules } = report;
const hasGood = totals.good !== null;
const hasInForce = comparison !== null;

const section = (id, heading, ...children) =>
  element("section", { id, "aria-labelledby": `${id}-h` }, element("h2", { id: `${id}-h` }, heading), ...children);

const header = () => {
  const links = [["verdict", "Verdict"], ["rules", "Rules"], report.algorithms.length > 0 && ["algorithms", "Algorithms"],
    ["keys", "Who"], ["method", "Method"]];
  const logs = method.inputs.map((input) => input.name).join(", ");
  return element("header", element("h1", "What the rules would have done"),
    totals.requests > 0 && element("p", `${time(totals.first_us)} to ${time(totals.last_us)} UTC · ${logs}`),
    element("nav", { "aria-label": "Sections" },
      links.filter(Boolean).map(([id, name]) => element("a", { href: `#${id}` }, name))));
};

const tiles = () => {
  const all = [
    ["Requests", grouped(totals.requests), `in ${span(totals.last_us - totals.first_us)}`],
    ["Denied", share(totals.denied, totals.denied_share_ppm), counted(totals.denied, "request")],
    hasInForce && ["Denied by current rules", share(comparison.old_denied, comparison.old_denied_share_ppm),
      counted(comparison.old_denied, "request")],
    ["Keys over a limit", grouped(totals.keys_denied), `of ${grouped(totals.keys)}`],
    hasGood && ["Good requests denied", grouped(totals.good_denied),
      `${share(totals.good_denied, totals.good_denied_share_ppm)} of ${grouped(totals.good)}`],
    totals.shadow_denied > 0 && ["Over shadow rules and announced limits only", grouped(totals.shadow_denied),
      "would be denied if enforced"],
  ];
  return element("dl.tiles", all.filter(Boolean).map(([name, value, text]) =>
    element("div", element("dt", name), element("dd", bold(value), element("small", text)))));
};

const bounds = () => report.bounds.length > 0 && [
  element("h3", "Bounds"),
  element("ul.bounds",
    report.bounds.map(({ bound, is_kept: isKept, broken_by: reasons }) => element(isKept ? "li.kept" : "li.broken",
      code(bound), " ", strong(isKept ? "kept" : "broken"), reasons.map((reason) => [element("br"), reason]))),
    report.untested.map((reason) => element("li.broken", strong("not tested"), element("br"), reason))),
];

const ruleSets = () => {
  const decisions = [["both admit", comparison.both_admit], ["only the new rules deny", comparison.only_new_denies],
    ["only the current rules deny", comparison.only_old_denies], ["both deny", comparison.both_deny]];
  const { keys_newly_over_good_only: goodKeys, good_only_new_denies: goodRequests, timeline } = comparison;
  const columns = overTime(timeline, [["Denied by both", timeline.both_deny],
    ["Denied only by the new rules", timeline.only_new_denies],
    ["Denied only by the current rules", timeline.only_old_denies]]);
  const facts = [
    `${counted(comparison.keys_newly_over, "key")} newly over a limit` +
      (goodKeys === null ? "" : `, ${grouped(goodKeys)} of them with good requests only`),
    `${counted(comparison.keys_freed, "key")} no longer over a limit`,
    goodRequests !== null && `${counted(goodRequests, "good request")} denied only by the new rules`,
    comparison.only_in_new.length > 0 && `Limits only in the new rules: ${comparison.only_in_new.join(", ")}`,
    comparison.only_in_old.length > 0 && `Limits only in the current rules: ${comparison.only_in_old.join(", ")}`,
  ];
  return [
    element("h3", "New and current rules"),
    element("div.columns",
      table({}, "Requests by decision", [
        textColumn("Decision", ([name]) => name),
        numberColumn("Requests", ([, count]) => grouped(count)),
        numberColumn("Share", ([, count]) => shareOf(count, totals.requests)),
      ], decisions),
      list("ul", facts.filter(Boolean))),
    columns.lists.some(([, counts]) => sum(counts) > 0) &&
      figure(`Denied requests per ${period(columns.step)}`, comparisonPicture(columns), [key(".both", "by both"),
        key(".over", "only by the new rules"), key(".old", "only by the current rules")]),
  ];
};

const verdict = () => section("verdict", "Verdict",
  report.partial && element("p.warning", strong("Partial:"), " the log was not read to its end."),
  element("p.verdict", report.verdict), tiles(), bounds(), hasInForce && ruleSets());

// Makes the headings of a table buttons that sort it. Numbers start with the largest, texts with the first.
const sortable = (made) => {
  const body = made.tBodies[0];
  const headings = [...made.tHead.rows[0].cells];
  const value = (cell, isNumber) => {
    const text = cell.querySelector("data")?.value ?? cell.textContent;
    if (!isNumber) return text;
    if (text.startsWith("under")) return 0.00005;
    const number = parseFloat(text.replace(/[,≤ ]/g, ""));
    return Number.isNaN(number) ? -1 : number;
  };
  headings.forEach((heading, at) => {
    const button = element("button", { type: "button" }, heading.textContent);
    heading.replaceChildren(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const isNumber = heading.classList.contains("n");
      const [first, second] = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
      const order = heading.getAttribute("aria-sort") === first ? second : first;
      for (const other of headings) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => [value(row.cells[at], isNumber), row]);
      rows.sort(([a], [b]) => sign * (isNumber ? a - b : a.localeCompare(b, "en")));
      body.append(...rows.map(([, row]) => row));
      document.getElementById("status").textContent = `Sorted by ${button.textContent}, ${order}`;
    });
  });
  return made;
};

const ruleTable = () => {
  const sectionOf = new Map(sections.map(({ rule }, at) => [rules[rule], at]));
  const linked = (rule) =>
    sectionOf.has(rule) ? element("a", { href: `#rule-${sectionOf.get(rule)}` }, rule.rule) : rule.rule;
  const recommends = rules.some((rule) => rule.recommendation !== null);
  return scrolling("Rules", sortable(table({ id: "rule-table" }, "Limits that requests met", [
    textColumn("Rule", (rule) => [linked(rule), badges(rule)]),
    textColumn("Limit", limitText),
    numberColumn("Requests", (rule) => grouped(rule.asked)),
    numberColumn("Over", (rule) => grouped(rule.over)),
    numberColumn("Share over", (rule) => share(rule.over, rule.over_share_ppm)),
    hasInForce && numberColumn("In force", ({ old }) => orNone(old, () => share(old.over, old.over_share_ppm))),
    hasGood && numberColumn("Good over", (rule) => orNone(rule.good_over, grouped)),
    numberColumn("Keys", (rule) => grouped(rule.keys)),
    numberColumn("Keys over", (rule) => grouped(rule.keys_over)),
    hasInForce && numberColumn("Newly over", (rule) => orNone(rule.old?.keys_newly_over, grouped)),
    recommends && numberColumn("Recommended", (rule) => orNone(recommended(rule), grouped)),
  ], rules)));
};

const rulesSection = () => [
  section("rules", "Rules",
    rules.length ? ruleTable() : element("p.warning", "No request met a limit."),
    report.unmet_rules.length > 0 && element("div.warning", strong("No request matched these rules."),
      " Check the spelling in the rule files and in the map:",
      list("ul", report.unmet_rules.map(code)))),
  sections.length < rules.length &&
    element("p", `Only the ${sections.length} rules with most requests over the limit have pictures.`),
];

const algorithmTable = () => {
  // Limits of one rule may have one label.
  const rows = report.algorithms.flatMap(({ algorithms }, at) => algorithms.map((counts) => [rules[at], counts]));
  return scrolling("Algorithms side by side", sortable(table({ id: "algorithm-table" },
    "Requests over each limit, by algorithm", [
    textColumn("Rule", ([rule]) => `${rule.rule} ${grouped(rule.limit)} per ${ownPeriod(rule)}`),
    textColumn("Algorithm", ([, counts]) => counts.label),
    numberColumn("Burst", ([, counts]) => grouped(counts.burst)),
    numberColumn("Requests", ([, counts]) => grouped(counts.asked)),
    numberColumn("Over", ([, counts]) => grouped(counts.over)),
    numberColumn("Share over", ([, counts]) => share(counts.over, counts.over_share_ppm)),
    numberColumn("Keys over", ([, counts]) => grouped(counts.keys_over)),
  ], rows)));
};

// A table with bars for each key; the longest bar is that of the largest count of the key.
const worstKey = ({ key: name, rule, asked, algorithms }) => {
  const most = Math.max(1, largest(algorithms.map((count) => count.over)));
  const bar = (over, at) => element(`svg.bar.a${at % 6}`,
    { viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    element("rect", { width: Math.floor((over * 1_000) / most), height: 10 }));
  const heads = element("tr", element("th", { scope: "col" }, "Algorithm"),
    element("th.n", { scope: "col", colspan: 2 }, "Over"));
  const rows = algorithms.map(({ label, over }, at) => element("tr", element("th", { scope: "row" }, label),
    element("td", bar(over, at)), element("td.n", grouped(over))));
  return element("table", element("caption", code(cut(name)), ` of ${rule}: ${counted(asked, "request")}`),
    element("thead", heads), element("tbody", rows));
};

const sumsFigure = ({ rule, algorithms }, id) => {
  const title = `Requests over the limit of ${rule}, summed up, by algorithm`;
  const columns = overTime(rules[sections[0].rule].timeline, algorithms.map((counts) => [counts.label, counts.over_by_step]));
  const legend = algorithms.map(({ label, over }, at) => key(`.line.a${at % 6}`, `${label}: ${counted(over, "request")}`));
  return figure(`${rule}: requests over the limit, summed up`, sumsPicture(id, title, columns), legend);
};

const algorithmsSection = () => {
  if (!report.algorithms.length) return null;
  const most = ({ algorithms }) => largest(algorithms.map((counts) => counts.over));
  const drawn = [...report.algorithms].sort((a, b) => most(b) - most(a)).slice(0, 3).filter((rule) => most(rule) > 0);
  return section("algorithms", "Algorithms side by side",
    element("p", "The same traffic and the same limits, with all limits of the rule set as one algorithm. The pictures show " +
      "the keys and the rules with most requests over the limit."),
    algorithmTable(),
    report.worst_keys.length > 0 && [
      element("h3", "The keys with most requests over a limit"),
      method.sampling.level > 0 && note("Of the keys in the sample: a key with more denials may not be in it."),
      element("div.worst", report.worst_keys.map(worstKey)),
    ],
    drawn.map(sumsFigure));
};

const keysSection = () => {
  const keys = rules.flatMap((rule) => rule.top_denied.map((key) => [rule, key]));
  keys.sort(([, a], [, b]) => b.over - a.over);
  if (!keys.length) return section("keys", "Who is over a limit", element("p", "No key was over a limit."));
  const timeOfYear = (us) => orNone(us, (us) => time(us).slice(5));
  return section("keys", "Who is over a limit",
    element("p", "The keys with most requests over a limit. A key that is 16 hexadecimal digits is a hash, the same in every " +
      "report: run the simulation with ", code("--show-keys"), " to see the key itself."),
    scrolling("Who is over a limit", sortable(table({ id: "key-table" }, "Keys over a limit", [
      textColumn("Key", ([, key]) => code(cut(key.key))),
      textColumn("Rule", ([rule]) => rule.rule),
      numberColumn("Over", ([, key]) => `${key.error ? "≤ " : ""}${grouped(key.over)}`),
      numberColumn("Share of its requests", ([, key]) =>
        orNone(key.asked, (asked) => share(key.over, Math.min(1e6, ppmOf(key.over, asked))))),
      hasGood && numberColumn("Good over", ([, key]) => orNone(key.good_over, grouped)),
      hasInForce && numberColumn("In force", ([, key]) => orNone(key.old_over, grouped)),
      numberColumn("Peak / limit", ([rule, key]) => `${orNone(key.own_peak, grouped)} / ${grouped(rule.limit)}`),
      textColumn("First (UTC)", ([, key]) => timeOfYear(key.first_over_us)),
      textColumn("Last (UTC)", ([, key]) => timeOfYear(key.last_over_us)),
      numberColumn("Longest denial", ([, { longest_denial_us: us }]) => element("data", { value: us ?? 0 }, orNone(us, span))),
    ], keys.slice(0, 50)))));
};

// How the numbers came about.
const methodList = () => {
  const { reordering: order, sample, sampling, agreement } = method;
  const late = order.late > 0 &&
    `, at most ${span(order.most_late_us)} late, and were decided at the time of the request before them`;
  const shortened = order.was_shortened &&
    "; the window was shorter at times, because more requests lay in it than fit into memory";
  const sampled = `counts of keys are estimates from one in ${grouped(2 ** sampling.level)} keys, for all rules ` +
    `together with a relative standard error of ${percent(sampling.key_error_ppm)} %, for one rule with a larger one`;
  const log = (input) => element("div", code(input.name),
    ` (${input.format}, ${input.is_recognized ? "recognized" : "as given"}, ${grouped(input.bytes)} bytes)`,
    input.cut !== null && ["; ", strong(`not read to its end: ${input.cut}`)]);
  const digest = (file) => element("div", `${file.role} `, code(file.name), " ", element("code.digest", file.sha256));
  const entries = [
    ["Lines", `${grouped(method.lines)} read; ${grouped(method.not_kept)} left out by keep; ` +
      `${grouped(method.without_descriptor)} without a descriptor; ${grouped(method.unreadable)} unreadable`],
    ["Order", `sorted in a window of ${span(order.window_us)}; ${counted(order.late, "request")} came later`, late, shortened],
    ["Clock of the log", `resolution ${span(method.clock_resolution_us)}`],
    sample.one_in > 1 && ["Sample", `1/${sample.one_in} of the keys; all counts are of these, shares are estimates; ` +
      `${counted(sample.left_out, "request")} left out. A limit that is not by the sampled key is decided as ` +
      `1/${sample.one_in} of it`],
    ["Keys", sampling.level === 0 ? "all keys counted: exact" : sampled],
    method.evictions > 0 && ["Memory",
      `${counted(method.evictions, "counter")} evicted because memory was full: limits admitted too much`],
    agreement !== null && ["Agreement", agreement.summary + explained(agreement)],
    ["Logs", method.inputs.map(log)],
    ["Digests (SHA-256)", method.digests.map(digest)],
    ["Command", code(`ratelimitd ${method.command_line.join(" ")}`)],
    ["Version", method.program_version],
  ];
  return element("dl.method", entries.filter(Boolean).map(([name, ...text]) => [element("dt", name), element("dd", text)]));
};

// How many differences between simulation and log vanish if the times of the log are a little wrong.
const explained = ({ only_recorded: recorded, only_simulated: simulated, reproduced_ppm: reproduced, by_shift: shifts }) => {
  const differences = recorded + simulated;
  if (reproduced === null || differences === 0) return "";
  const vanished = shifts.map((shift) => `${grouped(shift.vanished)} within ${span(shift.shift_us)}`).join(", ");
  return ` Of the ${counted(differences, "difference")}, these vanish if the times of the log are a little wrong: ` +
    `${vanished}; ${grouped(differences - (shifts.at(-1)?.vanished ?? 0))} do not.`;
};

// What to do until the rules are enforced. Shadow rules must run for two periods of the slowest limit and for one cycle
// of the traffic.
const checklist = () => {
  const longest = largest(rules.map((rule) => rule.period_s));
  return element("ul.checklist", [
    ["Every rule that has to limit something is in the table, and none is listed as never met."],
    ["Few lines were skipped, and the simulation agrees with the denials in the log, if it has any."],
    ["The keys over each limit are known: no customer is among them who must not be denied."],
    ["The rules run with ", code("shadow_mode: true"), ` for at least ${period(longest * 2)} (two periods of the ` +
      "slowest limit) and one full cycle of the traffic, usually a week."],
    ["In ", code("ratelimitd_decisions_total"), " the share of ", code('outcome="shadow"'),
      " of each rule is near the share of this report."],
    ["One rule after the other is enforced, the one with the fewest keys over it first; the share of ", code("over_limit"),
      " is watched for two periods before the next."],
    ["The former rule file is at hand for the way back."],
  ].map((item) => element("li", item)));
};

const methodSection = () => section("method", "Method",
  methodList(),
  method.unreadable_lines.length > 0 && [
    element("h3", "Lines that could not be read"),
    list("ol", method.unreadable_lines.map(({ input, line, reason }) => [code(`${input}:${line}`), `: ${reason}`])),
  ],
  element("h3", "What these numbers cannot say"),
  element("p", "Recorded traffic does not react: a client that is denied may try again or stop. An attack in the log " +
    "counts as traffic, unless the map’s ", code("keep"), " leaves it out. Several users behind one address are one key."),
  element("h3", "Until the rules are enforced"),
  checklist());

document.querySelector("main").replaceChildren(header(), verdict(), ...rulesSection().filter(Boolean),
  ...sections.map(({ rule, heat }, id) => ruleSection(rules[rule], heat, id)),
  ...[algorithmsSection()].filter(Boolean), keysSection(), methodSection());
