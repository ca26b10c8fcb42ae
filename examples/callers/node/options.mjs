// The arguments that all programs of this folder have.

import { parseArgs } from "node:util";

import { RateLimit } from "./ratelimit.mjs";

/// Reads the arguments. `onFailure` is the default of the program: allow (fail open) or deny (fail closed).
export function options(onFailure, others) {
  const { values } = parseArgs({
    options: {
      address: { type: "string", default: "127.0.0.1:8080" },
      "on-failure": { type: "string", default: onFailure },
      // Seconds for one decision, with its tries.
      deadline: { type: "string", default: "0.25" },
      ...others,
    },
  });
  if (!["allow", "deny"].includes(values["on-failure"])) {
    console.error("--on-failure is allow or deny");
    process.exit(2);
  }
  return { ...values, limit: new RateLimit(values.address, values["on-failure"], values.deadline * 1000) };
}
