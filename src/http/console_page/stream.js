// The service: requests (times in milliseconds), and the event stream. EventSource cannot send a token, so fetch reads the stream.
const QUIET = 6e3, DEADLINE = 1e4, SECONDS = 900;
let token = "", connection = [], isOver, isRead, stream, enterToken;
const checked = async (answer) => {
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer;
};
const bearer = (own) => ((own ||= token) ? { authorization: `Bearer ${own}` } : {});
// A GET, or a POST if there is a body; `own` overrides the page's token.
const call = async (path, body, own) => {
  const post = body && { method: "POST", body: JSON.stringify(body) }, headers = { ...bearer(own), "content-type": "application/json" };
  return (await checked(await fetch(path, { ...post, headers, signal: AbortSignal.timeout(DEADLINE) }))).json();
};
const live = (text, level = "", more = "") => {
  connection = [text, level, more];
  const isStill = isPaused && !level;
  fill("live", isStill ? "paused" : text, more);
  $("live").className = `dot ${isStill ? "wait" : level}`;
  page.body.classList.toggle("stale", level === "bad");
  if (!state && level) fill("verdict", text);
};

const RECEIVE = {
  state: (next) => {
    const now = next.instance, before = state?.instance ?? now;
    if (!state) $("ask").elements.domain.value = next.rules.list[0]?.domain ?? "";
    if (before.id !== now.id) {
      moved = { level: "bad", title: "■ Connected to another process.", text: `${before.name} (${before.id}) before, ${now.name} (${now.id}) now.`, fix: "After a restart, or through a Service." };
      values.clear();
      looks.clear();
      Object.assign(listed, { version: null, at: 0, rows: [] });
      fetched = chosen = null;
    }
    state = next;
  },
  sample: ({ end, sample, rules, keys, marks, reasons, fleet, live }) => {
    // The next state includes the seconds that a slow reader missed.
    const missed = Array(Math.min(SECONDS, Math.max(0, end - state.end - 1))).fill(null);
    for (const [name, list] of Object.entries(state.series)) list.splice(0, Math.max(0, list.push(...missed, sample[name]) - SECONDS));
    for (const [id, asked, denied, denied_15m] of rules) {
      const rule = ruleOf(id) ?? {};
      Object.assign(rule, { asked, denied, denied_15m, since: rule.since ?? (denied ? end - 1 : null) });
    }
    for (const [id, denied, denied_15m] of keys) Object.assign(keyOf(id) ?? {}, { denied, denied_15m });
    for (const mark of marks) state.marks = [...state.marks.filter(({ at, until }) => at !== mark.at || !until), mark];
    Object.assign(state, { end, live });
    Object.assign(state.instance, { reasons, fleet });
  },
  end: () => { isOver = true; },
};
const follow = async () => {
  let timer;
  stream = new AbortController();
  const { signal } = stream, heard = () => { clearTimeout(timer); timer = setTimeout(() => stream.abort(), QUIET); };
  isOver = isRead = false;
  heard();
  try {
    const answer = await checked(await fetch("/console/events", { headers: bearer(), signal }));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const [, name, data] = /^event:\s(\w+)[^]*^data:\s(.*)$/m.exec(event) ?? [];
        RECEIVE[name]?.(JSON.parse(data));
      }
      if (!events[0] || isOver) continue;
      isRead = true;
      live("live");
      if (!isPaused && !isPressed) queueMicrotask(show);
    }
  } finally { clearTimeout(timer); }
};
const needToken = (why) => new Promise((go) => {
  live("token needed ", state ? "bad" : "wait", button("token", "Enter it…"));
  enterToken = () => dialog("This service needs a token", [el("p", "Enter the token of ", code("server.admin.token_file"), ". Only this tab keeps it, in memory."), field("token", "Token", { type: "password", required: true })], "Connect", ({ token: given }) => { token = given.trim(); go(); });
  enterToken().querySelector("[role=alert]").textContent = token && why;
});
const connect = async () => {
  for (let wait = 1; ; wait = Math.min(10, 2 * wait)) {
    let why = "no answer";
    try { await follow(); if (isRead) why = ""; } catch ({ status, message }) {
      if (status === 401) { await needToken(message); wait = 0.5; continue; }
      if (status) why = message; else console.error(message);
    }
    if (isOver) why = "the process has stopped";
    if (isRead) wait = 1;
    for (let left = wait; left > 0 && !page.hidden; left--) {
      if (why) live(`${why}: reconnecting in ${left} s`, "bad");
      await new Promise((go) => setTimeout(go, 1e3));
    }
    if (!page.hidden) continue;
    live("hidden", "wait");
    await new Promise((go) => page.addEventListener("visibilitychange", go, { once: true }));
    wait = 0.5;
  }
};
page.onvisibilitychange = () => { if (page.hidden) stream?.abort(); };
connect();
