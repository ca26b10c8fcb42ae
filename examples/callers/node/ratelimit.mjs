// Asks ratelimitd over HTTP (/json). No dependencies; fetch keeps connections open. Copy this file into your project.

export class Unavailable extends Error {}

/// Resolves to { admitted, seconds }: how long to wait before the work, or before the next try. Rejects with Unavailable
/// when ratelimitd gives no decision: decide there what your service does then.
export async function ask(address, domain, entries, hits = 1) {
  const request = {
    domain,
    descriptors: [{ entries: Object.entries(entries).map(([key, value]) => ({ key, value })) }],
    hitsAddend: hits,
  };
  let response, body;
  try {
    response = await fetch(`http://${address}/json`, {
      method: "POST",
      body: JSON.stringify(request),
      signal: AbortSignal.timeout(2000),
    });
    body = await response.text();
  } catch (error) {
    throw new Unavailable(`no answer from ratelimitd: ${error.cause ?? error}`);
  }
  if (response.status !== 200 && response.status !== 429) {
    throw new Unavailable(`${response.status} ${body.trim()}`);
  }
  const answer = JSON.parse(body);
  if (response.status === 200) {
    // The delay of a queue (`mode: queue`); no other limit sends one.
    return { admitted: true, seconds: (answer.dynamicMetadata?.delay_ms ?? 0) / 1000 };
  }
  const over = answer.statuses.filter((status) => status.code === "OVER_LIMIT");
  return { admitted: false, seconds: Math.max(...over.map((status) => parseFloat(status.durationUntilReset ?? "1s"))) };
}

/// Resolves when the work may begin, to the number of denials before.
export async function wait(address, domain, entries, hits = 1) {
  for (let denied = 0; ; denied++) {
    const { admitted, seconds } = await ask(address, domain, entries, hits);
    // A timer of Node may fire up to a millisecond early, and a call that comes too early is denied again.
    if (seconds > 0) await new Promise((resolve) => setTimeout(resolve, Math.ceil(seconds * 1000) + 1));
    if (admitted) return denied;
  }
}
