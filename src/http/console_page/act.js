// Dialogs and the user's actions. An action asks for a reason, which the service logs.
const field = (name, text, attributes) => el("label", text, el("input", { name, ...attributes }));
const choice = (name, text, options) => el("label", text, el("select", { name }, Object.entries(options).map(([value, shown]) => Object.assign(el("option", shown), { value }))));
const note = (...text) => el("p.note", text);
const fieldsOf = (form) => Object.fromEntries(new FormData(form));
// `run` receives the fields, and can return what comes next. If it throws, the message is shown and the dialog stays.
const dialog = (title, body, action, run) => {
  const box = $("dialog"), wrong = el("p.red", { role: "alert" }), submit = el("button", action);
  const form = el("form", { autocomplete: "off" }, el("h2", { id: "dialog-h" }, title), body, wrong, el("div.end", button("close", "Close"), run && submit));
  form.onsubmit = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      const next = await run?.(fieldsOf(form));
      box.close();
      next?.();
    } catch ({ message }) { patch(wrong, message); }
    submit.disabled = false;
  };
  box.replaceChildren(form);
  if (!box.open) box.showModal();
  return form;
};
const audited = () => [
  field("reason", "Reason", { required: true }),
  state.instance.values === "operator_token" && field("operator", "Operator token", { type: "password" }),
  note("The service logs the action, your address and the reason."),
];

const counter = ({ limit, algorithm, remaining, max_cost, retry_after_us, reset_after_us }, cost = 1) => [
  el("div", bold(`${grouped(max_cost - remaining)} of ${grouped(max_cost)} used`), remaining >= cost ? ", a request now is OK" : ", a request now is denied",
    max_cost ? `${retry_after_us ? `, next unit in ${micros(retry_after_us)}` : ""}, full again in ${micros(reset_after_us)}` : retry_after_us && `, blocked for ${micros(retry_after_us)}`, soft(` (${limit}${algorithm ? `, ${algorithm}` : ""})`)),
];
const look = async (id) => {
  looks.set(id, () => "…");
  const made = await call("/console/show", { id }).then((status) => () => counter(status), ({ message }) => () => el("span.red", message));
  if (looks.has(id)) looks.set(id, made);
  show();
};
const reset = (key) => dialog("Reset this counter?", [el("p", code(shownText(key)), " may use its whole limit again: ", code(ruleOf(key.rule)?.rule)), audited()], "Reset", async ({ reason, operator }) => {
  await call("/console/reset", { id: key.id, reason }, operator);
  say("The counter was reset.");
  return () => look(key.id);
});
const reveal = (keys, next) => (state.instance.values === "never"
  ? dialog("Values need a token", el("p", "The service has none: set ", code("server.admin.operator_token_file"), " or ", code("server.admin.token_file"), "."))
  : dialog("Show these values?", [el("p", `${plural(keys.length, "key")}, in this tab only. Secret values are not available. If the service has no `, code("server.admin.operator_token_file"), ", ", code("ratelimitctl token"), " prints the token."), audited()], "Show", async ({ reason, operator }) => {
    const shown = await call("/console/values", { ids: keys.map((key) => key.id), reason }, operator);
    for (const row of shown.keys) values.set(row.id, row);
    show();
    return next;
  }));

// A line for an exceptions file.
const yaml = (text) => JSON.stringify(text).replace(/[\x7f-\x9f\u2000-\u206f\ufeff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
const EFFECTS = { block: "Requests with this entry are denied", exempt: "Requests with this entry are admitted and not counted", multiplier: "The limit is multiplied" };
const except = (key) => {
  const rule = ruleOf(key.rule), known = values.get(key.id);
  // A hash or a pattern is not a request's value, and a limit from a request does not have a rule.
  const usable = key.entries.map(([name, masked], i) => ({ name, masked, i })).filter(({ name, masked, i }) => rule?.path && name !== "…" && !/^%[hk].*…$/.test(masked) && (known?.exact[i] ?? true));
  if (!usable[0]) return dialog("No exception possible", el("p", "The service has no value of this key."));
  const preview = el("p"), line = el("pre");
  const form = dialog("Exception for this key", [
    el("div.fields", choice("entry", "Entry", usable.map(({ name, masked, i }) => `${name}=${known?.entries[i][1] ?? masked}`)), field("value", "Value", { required: true }),
      choice("effect", "Effect", { block: "block", exempt: "exempt", multiplier: "multiply the limit" }), field("number", "Multiply by", { type: "number", min: 0.001, max: 1000, step: "any", value: 2 }),
      choice("scope", "For", { "": `every limit of domain ${rule.domain}`, rule: `the limit ${rule.rule}` }), choice("minutes", "Ends in", { 15: "15 minutes", 60: "1 hour", 120: "2 hours", 240: "4 hours", 1440: "24 hours", "": "no end" }),
      field("reason", "Reason"), field("by", "By")),
    preview, line, note(`Add this line to a YAML file of exceptions.path, ${state.instance.exceptions_path}. It takes effect half a second later.`),
  ], "Copy the line", navigator.clipboard && (() => navigator.clipboard.writeText(line.textContent)));
  const inputs = form.elements, putValue = () => { inputs.value.value = known?.entries[usable[inputs.entry.value].i][1] ?? ""; };
  form.oninput = (event) => {
    if (event?.target === inputs.entry) putValue();
    // An attacker tries the other limits next; an exempted client needs only this one.
    if (event?.target === inputs.effect) inputs.scope.value = inputs.effect.value === "block" ? "" : "rule";
    const { entry, value, effect, scope, minutes, reason, by } = fieldsOf(form), { name, masked } = usable[entry], times = Number(inputs.number.value), isTimes = effect === "multiplier";
    inputs.number.parentElement.hidden = !isTimes;
    const same = state.keys.filter((other) => (scope ? other.rule === rule.id : ruleOf(other.rule)?.domain === rule.domain) && other.entries.some(([n, v]) => n === name && v === masked));
    const [, units, per] = /^([\d,]+)(\sper.*)$/.exec(isTimes && rule.limit) ?? [];
    patch(preview, `${EFFECTS[effect]}${units ? `: ${rule.limit} becomes ${grouped(Math.max(1, Math.floor(units.replaceAll(",", "") * times)))}${per}` : ""}. It affects ${plural(same.length, "key")} on this page, ${rate(total(same.map(({ denied }) => denied)))} denials/s now. `,
      value ? "" : ["The value is masked: type it, or ", button("value", "show it…", key.id)]);
    const columns = {
      domain: rule.domain, key: name, value, ...(scope && { path: rule.path, limit_name: rule.name }), [effect]: isTimes ? times : true,
      until: minutes && `${new Date((state.end + minutes * 60) * 1000).toISOString().slice(0, 19)}Z`, reason, by,
    };
    line.hidden = !value;
    patch(line, `- { ${Object.entries(columns).filter(([, column]) => column).map(([column, content]) => `${column}: ${typeof content === "string" ? yaml(content) : content}`).join(", ")} }`);
  };
  putValue();
  form.oninput();
};

// Ask: which current rules apply to a request, and the state of its counters.
$("ask").onsubmit = async (event) => {
  event.preventDefault();
  const { domain, entries, cost } = fieldsOf(event.target), shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const descriptor = entries.replaceAll("\\,", "\0").split(",").map((entry) => entry.replaceAll("\0", ",").split("=")).map(([key, ...value]) => ({ key, value: value.join("=") }));
  const body = { domain, hits_addend: Number(cost), descriptors: [{ entries: descriptor }] };
  const [why, now] = await Promise.allSettled([call("/explain", body), call("/counters/show", body)]);
  fill("answer", now.value ? now.value.counters.flatMap((status) => counter(status, cost)) : soft(now.reason.message), why.value ? el("pre", why.value.text) : "", note("As a command: ", code(`ratelimitctl counters show --domain ${shell(domain)} ${shell(entries)}`)));
};

const DO = {
  tab: (name) => { tab = name; isHeld = false; },
  rule: (id) => { if (!String(getSelection())) chosen = chosen === Number(id) ? null : Number(id); },
  look: (id) => { if (!looks.delete(id)) look(id); },
  reset: (id) => reset(keyOf(id)),
  except: (id) => except(keyOf(id)),
  value: (id) => reveal([keyOf(id)], () => except(keyOf(id))),
  close: () => $("dialog").close(),
  token: () => enterToken(),
  reveal: () => { if (values.size) values.clear(); else reveal(state.keys); },
  pause: () => {
    isPaused = !isPaused;
    $("pause").setAttribute("aria-pressed", isPaused);
    live(...connection);
  },
  copy: () => navigator.clipboard.writeText(summary()).then(() => say("Copied.")),
  filter: () => $("filter").focus(),
};
page.addEventListener("click", ({ target }) => {
  const { do: what } = target.closest("[data-do]")?.dataset ?? {};
  if (what) { DO[what](target.closest("[data-key]")?.dataset.key); show(); }
});
$("copy").hidden = !navigator.clipboard;
$("filter").oninput = () => { isHeld = false; show(); };
$("chart").onpointermove = $("chart").onpointerleave = point;
$("rule-table").onpointerenter = $("rule-table").onpointerleave = ({ type }) => { isHeld = type === "pointerenter"; };
for (const name of ["pointerdown", "pointerup", "pointercancel"]) addEventListener(name, () => { isPressed = name === "pointerdown"; });
addEventListener("resize", show);
addEventListener("keydown", (event) => {
  const { key, target } = event, what = { "/": "filter", p: "pause", c: "copy" }[key];
  if ($("dialog").open || event.ctrlKey || event.metaKey) return;
  if (key === "Escape") { $("filter").value = ""; chosen = null; show(); }
  if (!what || target.matches("input, select") || $(what).hidden || !state) return;
  event.preventDefault();
  DO[what]();
  show();
});
