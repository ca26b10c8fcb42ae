// An API server that answers 429 with Retry-After.
//
//   node examples/callers/node/api.mjs --port 9000
//   curl -i -H 'X-User: ann' localhost:9000

import { createServer } from "node:http";

import { options } from "./options.mjs";

// Without a decision it lets the request pass. With --on-failure deny it answers 503.
const { limit, port } = options("allow", { port: { type: "string", default: "9000" } });

createServer(async (request, response) => {
  const user = request.headers["x-user"] ?? "anonymous";
  const { admitted, decided, seconds } = await limit.ask("callers", { user });
  // Whole seconds, rounded up: a client that comes back then is admitted.
  const headers = { "Retry-After": Math.ceil(seconds) };
  if (admitted) {
    response.end("hello\n");
  } else if (decided) {
    response.writeHead(429, headers).end("too many requests\n");
  } else {
    response.writeHead(503, headers).end("no decision\n");
  }
}).listen(Number(port), "127.0.0.1");
