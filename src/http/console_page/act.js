// Dialogs and the user's actions. An action asks for a reason, which the service logs.
const field = (name, text, attributes) => el("label", text, el("input", { name, ...attributes }));
const choice = (name, text, options) => el("label", text, el("select", { name }, Object.entries(options).map(([value, shown]) => Object.assign(el("option", shown), { value }))));
const note = (...text) => el("p.note", text);
const fieldsOf = (form) => Object.fromEntries(new FormData(form));
// `run` receives the fields, and can return what comes next. If it throws, the message is shown and the dialog stays.
const dialog = (title, body, action, run) => {
  const box = $("dialog"), wrong = el("p.red", { role: "alert" }), submit = el("button", { name: "go" }, action);
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
const audited = (value) => [
  field("reason", "Reason", { required: true, value }),
  state.instance.values === "operator_token" && field("operator", "Operator token", { type: "password", autocomplete: "off" }),
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
const reveal = (keys) => (state.instance.values === "never"
  ? dialog("Values need a token", el("p", "The service has none: set ", code("server.admin.operator_token_file"), " or ", code("server.admin.token_file"), "."))
  : dialog("Show these values?", [el("p", `${plural(keys.length, "key")}, in this tab only. Secret values are not available. If the service has no `, code("server.admin.operator_token_file"), ", ", code("ratelimitctl token"), " prints the token."), audited()], "Show", async ({ reason, operator }) => {
    const shown = await call("/console/values", { ids: keys.map((key) => key.id), reason }, operator);
    for (const row of shown.keys) values.set(row.id, row);
    show();
  }));

// A live exception for a denied key. The service knows the value.
const USUAL_REASON = "from the console";
const EFFECTS = { block: ["Block", "denies these requests"], exempt: ["Exempt", "admits these requests and does not count them"], multiplier: ["Multiply", "is multiplied for these requests"], limit: ["Set the limit", "gets another number for these requests"] };
const except = (key) => {
  const rule = ruleOf(key.rule), limit = key.limit ?? rule?.limit, shown = (values.get(key.id) ?? key).entries, preview = el("p"), morning = new Date(state.end * 1000);
  morning.setDate(morning.getDate() + 1);
  morning.setHours(8, 0, 0, 0);
  // An attacker tries the other limits next. An override has no rule.
  const at8 = morning.toISOString(), isForRule = (effect) => effect !== "block" && rule?.path;
  // The rest of a long key is one hash. A value of the rule files has no tag: every client may send it.
  const usable = key.entries.map(([name, masked], i) => ({ name, masked, i })).filter(({ name }) => name !== "…"), own = usable.findLast(({ masked }) => /#[\da-f]{4}$|^%[hk].*…$/.test(masked)) ?? usable.at(-1);
  if (!own) return dialog("No exception possible", el("p", "The service has no value of this key."));
  const form = dialog("Exception for this key", [
    el("div.fields", choice("entry", "Requests with", Object.fromEntries(usable.map(({ i }) => [i, shown[i].join("=")]))), choice("effect", "Effect", { block: "block", exempt: "exempt", multiplier: "multiply the limit", limit: "set the limit" }),
      choice("until", "Ends", { "1h": "in 1 hour", "4h": "in 4 hours", [`${at8.slice(0, 19)}Z`]: `tomorrow 08:00 (${at8.slice(11, 16)} UTC)`, "": "never: permanent" }),
      field("multiplier", "Multiply by", { type: "number", min: 0.001, max: 1000, step: "any", value: 2, required: true }), field("limit", `Instead of ${limit}`, { type: "number", min: 0, required: true })),
    preview, audited(USUAL_REASON),
  ], "Block", async ({ entry, effect, until, multiplier, limit: units, reason, operator }) => {
    const change = { [effect]: multiplier ?? (units ? Number(units) : true), ...(isForRule(effect) && { path: rule.path, limit_name: rule.name || undefined }) };
    const { rows: [row] } = await call("/console/except", { id: key.id, entry: Number(entry), effect: change, until: until || undefined, reason }, operator);
    listed.at = 0;
    say(`The exception is set: live row ${row.id}.`);
    return row.warnings?.[0] && (() => dialog("The exception is set, but:", row.warnings.map((text) => el("p", text))));
  });
  const inputs = form.elements;
  inputs.entry.value = own.i;
  form.oninput = () => {
    const { value: effect } = inputs.effect, [name, masked] = key.entries[inputs.entry.value];
    for (const number of ["multiplier", "limit"]) inputs[number].parentElement.hidden = inputs[number].disabled = number !== effect;
    const same = state.keys.filter((other) => ruleOf(other.rule)?.domain === rule?.domain && other.entries.some(([n, v]) => n === name && v === masked));
    const [, units, per] = /^([\d,]+)(\sper.*)$/.exec(effect === "multiplier" && limit) ?? [];
    patch(preview, `${isForRule(effect) ? `The limit ${rule.rule}` : "Every limit of the domain"} ${EFFECTS[effect][1]}${units ? `: ${limit} becomes ${grouped(Math.max(1, Math.floor(units.replaceAll(",", "") * inputs.multiplier.value)))}${per}` : ""}. ${plural(same.length, "key")} on this page, ${rate(total(same.map(({ denied }) => denied)))} denials/s now.`);
    patch(inputs.go, EFFECTS[effect][0]);
  };
  form.oninput();
};
const remove = (id) => {
  const { domain, key, value } = listed.rows.find((row) => row.id === id).row;
  dialog("Remove this exception?", [el("p", code(`${key}=${value}`), ` of domain ${domain} gets the limits of the rules and files again.`), audited(USUAL_REASON)], "Remove", async ({ reason, operator }) => {
    await call("/exceptions/remove", { ids: [id], reason }, operator);
    listed.at = 0;
    say("The exception is removed.");
  });
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
  remove: (id) => remove(id),
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
