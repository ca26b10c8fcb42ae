// Asks ratelimitd over HTTP (/json, /holds). No dependencies; fetch keeps connections open. Copy this file into your project.

// Milliseconds. When ratelimitd does not answer at all, onFailure answers at once for this time, and nothing is sent.
const AWAY = 1000;

/// ratelimitd gave no decision. `status` is that of HTTP, or undefined if there was no answer at all.
class Unavailable extends Error {
  constructor(reason, status, unsent = false) {
    super(reason);
    Object.assign(this, { status, unsent });
  }
}

export class RateLimit {
  #awayUntil = 0;
  #logged;

  /// `onFailure`: what to do without a decision, "allow" (fail open) or "deny" (fail closed). `deadline`: the
  /// milliseconds that one decision may take, with all its tries.
  constructor(address, onFailure, deadline = 250) {
    Object.assign(this, { address, onFailure, deadline });
  }

  /// Asks for hits, and again until the deadline. Never rejects: without a decision onFailure answers, and `decided` is
  /// false. `seconds` is how long to wait before the work, or, if not admitted, before the next try. `receipt` is what
  /// `settle` returns, from a limit with `settle: true`.
  ///
  /// A try whose answer was lost may have been counted. Then the limit admits less, never more.
  async ask(domain, entries, hits = 1) {
    return this.#decide("/json", request(domain, entries, hits));
  }

  /// Asks for a job's estimate. The job ends within the ttl, such as "30m". `hold` is what `renew` and `commit` need.
  async reserve(domain, entries, hits, ttl = "1h") {
    return this.#decide("/holds", { ...request(domain, entries, hits), ttl });
  }

  /// Keeps a job's place of a limit with `concurrency`. Not admitted: it has ended, and no other is free.
  async renew(domain, entries, hold) {
    return this.#decide("/holds/renew", { ...request(domain, entries, 0), id: hold });
  }

  /// Books the real cost of a job once, however often you call this; 0 releases the hold. Resolves to the result, or,
  /// without an answer, to "": then call it again, later.
  async commit(domain, entries, hold, hits) {
    const body = { ...request(domain, entries, hits), id: hold };
    try {
      return (await this.#retry(mayChange, (end) => this.#post("/holds/commit", body, end))).answer.result;
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      this.#warn(`not committed: ${error.message}`);
      return "";
    }
  }

  async #decide(path, body) {
    if (performance.now() < this.#awayUntil) return this.#undecided();
    try {
      return decision(await this.#retry(mayChange, (end) => this.#post(path, body, end)));
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      this.#warn(`no decision, onFailure is ${this.onFailure}: ${error.message}`);
      if (error.status === undefined) this.#awayUntil = performance.now() + AWAY;
      return this.#undecided();
    }
  }

  /// Books the real cost of what `ask` admitted with the same entries. False: lost, and the estimate stays.
  ///
  /// A settle that arrives twice is booked twice. So it is tried again only while there is no connection.
  async settle(domain, entries, receipt, hits) {
    const settled = request(domain, { ...entries, ratelimitd_receipt: receipt }, hits);
    try {
      await this.#retry((error) => error.unsent, (end) => this.#post("/json", settled, end));
      return true;
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      this.#warn(`not settled: ${error.message}`);
      return false;
    }
  }

  /// Resolves when the work may begin, to the number of denials before.
  async wait(domain, entries, hits = 1) {
    for (let denied = 0; ; denied++) {
      const { admitted, seconds } = await this.ask(domain, entries, hits);
      if (seconds > 0) await sleep(seconds * 1000);
      if (admitted) return denied;
    }
  }

  /// Reports the Retry-After of a third party: until then no caller is admitted by a limit with `feedback`. Resolves to
  /// the seconds to sleep before the next `wait`: without a decision you wait alone.
  async pause(domain, entries, retryAfter) {
    const { decided } = await this.ask(domain, { ...entries, ratelimitd_pause: retryAfter });
    return decided ? 0 : Number(retryAfter) || AWAY / 1000;
  }

  #undecided() {
    const admitted = this.onFailure === "allow";
    return { admitted, seconds: admitted ? 0 : AWAY / 1000, decided: false, receipt: "", hold: "" };
  }

  /// Logs one line per second at most.
  #warn(message) {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#logged) console.error(message);
    this.#logged = second;
  }

  async #retry(mayChange, attempt) {
    const end = performance.now() + this.deadline;
    for (let pause = 20; ; pause *= 2) {
      try {
        return await attempt(end);
      } catch (error) {
        if (!mayChange(error) || performance.now() + pause >= end) throw error;
      }
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  /// One try: the status and the answer.
  async #post(path, request, end) {
    // Half of the deadline at most, so that a second try has time.
    const timeout = Math.max(1, Math.min(this.deadline / 2, end - performance.now()));
    let response, body;
    try {
      response = await fetch(`http://${this.address}${path}`, {
        method: "POST",
        body: JSON.stringify(request),
        signal: AbortSignal.timeout(Math.ceil(timeout)),
      });
      body = await response.text();
    } catch (error) {
      throw new Unavailable(`${error.cause ?? error}`, undefined, error.cause?.code === "ECONNREFUSED");
    }
    const { status } = response;
    // In JSON, 503 is a commit's result.
    if ([200, 429, 503].includes(status) && response.headers.get("content-type") === "application/json") {
      return { status, answer: JSON.parse(body) };
    }
    throw new Unavailable(`${status} ${body.trim()}`, status);
  }
}

// A status below 500 would not change, so it is final.
const mayChange = (error) => error.status === undefined || error.status >= 500;

function request(domain, entries, hits) {
  const list = Object.entries(entries).map(([key, value]) => ({ key, value }));
  return { domain, descriptors: [{ entries: list, hitsAddend: hits }] };
}

function decision({ status, answer }) {
  // The delay is that of a queue (`mode: queue`); no other limit sends one. Without `response.dynamic_metadata`, and for
  // a cost that never fits, a denial has no time.
  const { delay_ms = 0, retry_after_ms = 1000, receipt = "" } = answer.dynamicMetadata ?? {};
  const admitted = status === 200;
  return { admitted, seconds: (admitted ? delay_ms : retry_after_ms) / 1000, decided: true, receipt, hold: answer.id ?? "" };
}

// A timer of Node may fire up to a millisecond early, and a call that comes too early is denied again. One of more than
// 24.8 days would fire at once.
export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, Math.min(Math.ceil(milliseconds) + 1, 2 ** 31 - 1)));
}
