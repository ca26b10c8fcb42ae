"""An API server that answers 429 with Retry-After.

    python3 examples/callers/python/api.py --port 9000
    curl -i -H 'X-User: ann' localhost:9000
"""

import math
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from options import options as common_options
from ratelimit import RateLimit


def main():
    parser = common_options("allow")
    parser.add_argument("--port", type=int, default=9000)
    options = parser.parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)

    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            user = self.headers.get("X-User", "anonymous")
            answer = limit.ask("callers", [("user", user)])
            if answer.admitted:
                self.answer(200, "hello\n", {})
                return
            # Whole seconds, rounded up: a client that comes back then is admitted.
            headers = {"Retry-After": str(math.ceil(answer.seconds))}
            if answer.decided:
                self.answer(429, "too many requests\n", headers)
            else:
                self.answer(503, "no decision\n", headers)

        def answer(self, status, text, headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    ThreadingHTTPServer(("127.0.0.1", options.port), Api).serve_forever()


if __name__ == "__main__":
    main()
