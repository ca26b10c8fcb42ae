// A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//
//   node examples/callers/node/worker.mjs --jobs 10
//   node examples/callers/node/worker.mjs --jobs 10 --key third_party_queue

import { parseArgs } from "node:util";

import { wait } from "./ratelimit.mjs";

const { values: options } = parseArgs({
  options: {
    address: { type: "string", default: "127.0.0.1:8080" },
    key: { type: "string", default: "third_party" },
    name: { type: "string", default: "api.example.com" },
    jobs: { type: "string", default: "10" },
  },
});

const start = performance.now();
for (let job = 0; job < Number(options.jobs); job++) {
  const denied = await wait(options.address, "callers", { [options.key]: options.name });
  // Here the call to the third party.
  console.log(`job ${job} after ${((performance.now() - start) / 1000).toFixed(3)} s, denied ${denied}`);
}
