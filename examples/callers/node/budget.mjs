// A budget of tokens in two steps: an estimate before the call of a language model, the real cost after it.
//
//   node examples/callers/node/budget.mjs --requests 3 --estimate 2000 --cost 53

import { options } from "./options.mjs";

const { limit, tenant, requests, estimate, cost } = options("deny", {
  tenant: { type: "string", default: "acme" },
  requests: { type: "string", default: "3" },
  estimate: { type: "string", default: "2000" },
  // What the model reports in the end.
  cost: { type: "string", default: "53" },
});

for (let request = 0; request < Number(requests); request++) {
  const { admitted, seconds, receipt } = await limit.ask("callers", { tenant }, Number(estimate));
  if (!admitted) {
    console.log(`request ${request} denied, next try in ${seconds.toFixed(3)} s`);
    continue;
  }
  let real = 0;
  let settled;
  try {
    // Here the call of the model. A call that fails costs nothing.
    real = Number(cost);
  } finally {
    settled = await limit.settle("callers", { tenant }, receipt, real);
  }
  console.log(`request ${request} cost ${real}, ${settled ? "settled" : "not settled"}`);
}
