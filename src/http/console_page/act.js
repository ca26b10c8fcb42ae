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
  state.instance.values === "operator_token" && field("operator", "Operator token", { type: "password" }),
  note("The service logs the action, your address and the reason."),
];

// `denies`: whether a denial by this limit takes effect now.
const counter = ({ name, algorithm, mode, unlimited, used, remaining, limit, refills_at, resets_at, read_at }, cost = 1, denies = !unlimited && !/shadow|soft/.test(mode)) => {
  const wait = (text, time) => time ? `, ${text} ${micros((Date.parse(time) - Date.parse(read_at)) * 1000)}` : "";
  return el("div", bold(`${grouped(used ?? limit - remaining)}${unlimited ? "" : ` of ${grouped(limit)}`} used`), denies && `, a request now is ${remaining >= cost ? "OK" : "denied"}`,
    limit ? wait("next unit in", !remaining && refills_at) + wait("full again in", resets_at) : wait("blocked for", !unlimited && refills_at), soft(` (${name}${algorithm ? `, ${algorithm}` : ""})`));
};
const look = async (id) => {
  looks.set(id, "…");
  const found = await call("/console/show", { id }).catch(({ message }) => message);
  if (looks.has(id)) looks.set(id, found);
  show();
};
// Asks for a reason, which the service logs, and sends it with what `body` makes of the fields.
const act = (title, content, verb, path, body, done, reason) => dialog(title, [content, audited(reason)], verb, async (fields) => done(await call(path, { ...body(fields), reason: fields.reason }, fields.operator)));
const reset = (id, key = keyOf(id)) => act("Reset this counter?", el("p", code(shownText(key)), " may use its whole limit again: ", code(ruleOf(key.rule)?.rule)), "Reset", "/console/reset", () => ({ id }), () => {
  say("The counter was reset.");
  return () => look(id);
});
const reveal = (keys) => act("Show these values?", el("p", `${plural(keys.length, "key")}, in this tab only. Secret values are not available. If the service has no `, code("server.admin.operator_token_file"), ", ", code("ratelimitctl token"), " prints the token."), "Show", "/console/values", () => ({ ids: keys.map((key) => key.id) }), (shown) => {
  for (const row of shown.keys) values.set(row.id, row);
  show();
});

// A live exception for a denied key. The service knows the value.
const USUAL_REASON = "from the console";
const changed = (what) => {
  listed.at = 0;
  say(`The exception is ${what}.`);
};
const EFFECTS = { block: ["Block", "denies these requests"], exempt: ["Exempt", "admits these requests and does not count them"], multiplier: ["Multiply", "is multiplied for these requests"], limit: ["Set the limit", "gets another number for these requests"] };
const except = (id) => {
  const key = keyOf(id), rule = ruleOf(key.rule), limit = key.limit ?? rule?.limit, shown = (values.get(key.id) ?? key).entries, preview = el("p");
  // An attacker tries the other limits next. An override has no rule.
  const isForRule = (effect) => effect !== "block" && rule?.path;
  // The rest of a long key is one hash. A value of the rule files has no tag: every client may send it.
  const usable = key.entries.map(([name, masked], i) => ({ name, masked, i })).filter(({ name }) => name !== "…"), own = usable.findLast(({ masked }) => /#[\da-f]{4}$|^%[hk].*…$/.test(masked)) ?? usable.at(-1);
  if (!own) return dialog("No exception possible", el("p", "The service has no value of this key."));
  const form = act("Exception for this key", [
    el("div.fields", choice("entry", "Requests with", Object.fromEntries(usable.map(({ i }) => [i, shown[i].join("=")]))), choice("effect", "Effect", Object.fromEntries(Object.entries(EFFECTS).map(([effect, [verb]]) => [effect, verb]))),
      choice("until", "Ends", { "1h": "in 1 hour", "4h": "in 4 hours", "12h": "in 12 hours", "": "never: permanent" }),
      field("multiplier", "Multiply by", { type: "number", min: 0.001, max: 1000, step: "any", value: 2, required: true }), field("limit", `Instead of ${limit}`, { type: "number", min: 0, required: true })),
    preview,
  ], "Block", "/console/except", ({ entry, effect, until, multiplier, limit: units }) => ({
    id, entry: Number(entry), until: until || undefined,
    effect: { [effect]: multiplier ?? (units ? Number(units) : true), ...(isForRule(effect) && { path: rule.path, limit_name: rule.name || undefined }) },
  }), ({ rows: [row] }) => {
    changed(`set: live row ${row.id}`);
    return row.warnings?.[0] && (() => dialog("The exception is set, but:", row.warnings.map((text) => el("p", text))));
  }, USUAL_REASON);
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
  const { domain, key, value } = liveOf(id).row;
  act("Remove this exception?", el("p", code(`${key}=${value}`), ` of domain ${domain} gets the limits of the rules and files again.`), "Remove", "/exceptions/remove", () => ({ ids: [id] }), () => changed("removed"), USUAL_REASON);
};

// Ask: which current rules apply to a request, and the state of its counters.
$("ask").onsubmit = async (event) => {
  event.preventDefault();
  const { domain, entries, cost } = fieldsOf(event.target), shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const descriptor = entries.replaceAll("\\,", "\0").split(",").map((entry) => entry.replaceAll("\0", ",").split("=")).map(([key, ...value]) => ({ key, value: value.join("=") }));
  const body = { domain, hits_addend: Number(cost), descriptors: [{ entries: descriptor }] };
  const [why, now] = await Promise.allSettled([call("/explain", body), call("/counters/show", body)]);
  fill("answer", now.value ? now.value.counters.map((status) => counter(status, cost)) : soft(now.reason.message), why.value ? el("pre", why.value.text) : "", note("As a command: ", code(`ratelimitctl counters show --domain ${shell(domain)} ${shell(entries)}`)));
};

const DO = {
  tab: (name) => { tab = name; },
  rule: (id) => { if (!String(getSelection())) chosen = chosen === Number(id) ? null : Number(id); },
  look: (id) => { if (!looks.delete(id)) look(id); },
  reset, except, remove,
  close: () => $("dialog").close(),
  token: () => enterToken(),
  reveal: () => { if (values.size) values.clear(); else reveal(state.keys); },
  pause: () => {
    isPaused = !isPaused;
    $("pause").ariaPressed = isPaused;
    live(...connection);
  },
  copy: () => navigator.clipboard.writeText(summary()).then(() => say("Copied.")),
  filter: () => $("filter").focus(),
};
page.onclick = ({ target }) => {
  const { do: what } = target.closest("[data-do]")?.dataset ?? {}, key = target.closest("[data-key]")?.dataset.key;
  if (!what) return;
  // A paused page still shows keys and live rows that are gone.
  if (target.closest(".flow") && !keyOf(key) && !liveOf(key)) say("This row has gone.");
  else DO[what](key);
  show();
};
$("copy").hidden = !navigator.clipboard;
$("filter").oninput = show;
$("chart").onpointermove = $("chart").onpointerleave = point;
onpointerdown = onpointerup = onpointercancel = ({ type }) => { isPressed = type === "pointerdown"; };
onresize = show;
onkeydown = (event) => {
  const { key, target } = event, what = { "/": "filter", p: "pause", c: "copy" }[key];
  if ($("dialog").open || event.ctrlKey || event.metaKey) return;
  if (key === "Escape") { $("filter").value = ""; chosen = null; show(); }
  if (!what || target.matches("input, select") || $(what).hidden || !state) return;
  event.preventDefault();
  DO[what]();
  show();
};
