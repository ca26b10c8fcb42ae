// A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//
//   node examples/callers/node/worker.mjs --jobs 10 --url http://localhost:9000
//   node examples/callers/node/worker.mjs --jobs 10 --key third_party_queue

import { options } from "./options.mjs";
import { sleep } from "./ratelimit.mjs";

// Without a decision it waits until ratelimitd is back.
const { limit, key, name, jobs, url } = options("deny", {
  key: { type: "string", default: "third_party" },
  name: { type: "string", default: "api.example.com" },
  jobs: { type: "string", default: "10" },
  // What to call; without it nothing is called.
  url: { type: "string" },
});
const thirdParty = { [key]: name };

/// Calls the third party. Resolves to its Retry-After if it has had too many calls.
async function call() {
  const response = await fetch(url);
  await response.text();
  return response.status === 429 && (response.headers.get("retry-after") ?? "1");
}

const start = performance.now();
for (let job = 0; job < Number(jobs); job++) {
  let denied = await limit.wait("callers", thirdParty);
  for (let retryAfter; url && (retryAfter = await call()); ) {
    // No worker calls it until then.
    await sleep(1000 * (await limit.pause("callers", thirdParty, retryAfter)));
    denied += await limit.wait("callers", thirdParty);
  }
  console.log(`job ${job} after ${((performance.now() - start) / 1000).toFixed(3)} s, denied ${denied}`);
}
