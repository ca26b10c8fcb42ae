// An API server that answers 429 with Retry-After.
//
//   node examples/callers/node/api.mjs --port 9000
//   curl -i -H 'X-User: ann' localhost:9000

import { createServer } from "node:http";
import { parseArgs } from "node:util";

import { Unavailable, ask } from "./ratelimit.mjs";

const { values: options } = parseArgs({
  options: { address: { type: "string", default: "127.0.0.1:8080" }, port: { type: "string", default: "9000" } },
});

async function decide(user) {
  try {
    return await ask(options.address, "callers", { user });
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error;
    // Without a decision this API lets the request pass. An API whose upstream must be protected answers 503.
    console.error(`no decision: ${error.message}`);
    return { admitted: true, seconds: 0 };
  }
}

createServer(async (request, response) => {
  const { admitted, seconds } = await decide(request.headers["x-user"] ?? "anonymous");
  if (admitted) {
    response.end("hello\n");
  } else {
    // Whole seconds, rounded up: a client that comes back then is admitted.
    response.writeHead(429, { "Retry-After": Math.ceil(seconds) }).end("too many requests\n");
  }
}).listen(Number(options.port), "127.0.0.1");
