// A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//
//   node examples/callers/node/worker.mjs --jobs 10
//   node examples/callers/node/worker.mjs --jobs 10 --key third_party_queue

import { options } from "./options.mjs";

// Without a decision it waits until ratelimitd is back.
const { limit, key, name, jobs } = options("deny", {
  key: { type: "string", default: "third_party" },
  name: { type: "string", default: "api.example.com" },
  jobs: { type: "string", default: "10" },
});

const start = performance.now();
for (let job = 0; job < Number(jobs); job++) {
  const denied = await limit.wait("callers", { [key]: name });
  // Here the call to the third party.
  console.log(`job ${job} after ${((performance.now() - start) / 1000).toFixed(3)} s, denied ${denied}`);
}
