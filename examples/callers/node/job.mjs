// A job that reserves a place and an estimate of its tokens, works, and commits the real cost once.
//
//   node examples/callers/node/job.mjs --estimate 50000 --cost 31840 --seconds 1

import { options } from "./options.mjs";
import { sleep } from "./ratelimit.mjs";

const { limit, tenant, estimate, cost, seconds } = options("deny", {
  tenant: { type: "string", default: "acme" },
  estimate: { type: "string", default: "50000" },
  // What the job has used in the end, and how long it works.
  cost: { type: "string", default: "31840" },
  seconds: { type: "string", default: "0" },
});

const budget = { budget: tenant };
let hold;
for (;;) {
  const answer = await limit.reserve("callers", budget, Number(estimate), "30m");
  if (answer.hold) {
    hold = answer.hold;
    break;
  }
  console.log(`job waits ${answer.seconds.toFixed(3)} s`);
  await sleep(answer.seconds * 1000);
}
console.log("job starts");
let real = 0;
let result = "";
try {
  // Here the work. A job that fails before it used anything releases its hold.
  for (let half = 0; half < 2; half += 1) {
    await sleep(Number(seconds) * 500);
    // Renew at least twice a minute, the rule's period. Without an answer, the place stays until then.
    const { decided, admitted } = await limit.renew("callers", budget, hold);
    if (decided && !admitted) console.log("job lost its place");
  }
  real = Number(cost);
} finally {
  // Store the id with the job, so that another process can commit it after a crash.
  while ((result = await limit.commit("callers", budget, hold, real)) === "") await sleep(1000);
}
console.log(`job cost ${real}, ${result}`);
