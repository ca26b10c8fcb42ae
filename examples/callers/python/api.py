"""An API server that answers 429 with Retry-After.

    python3 examples/callers/python/api.py --port 9000
    curl -i -H 'X-User: ann' localhost:9000
"""

import argparse
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ratelimit import RateLimit, Unavailable


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--address", default="127.0.0.1:8080", help="the HTTP port of ratelimitd")
    arguments.add_argument("--port", type=int, default=9000)
    options = arguments.parse_args()
    # A connection to ratelimitd for each thread of the server.
    local = threading.local()

    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if not hasattr(local, "limit"):
                local.limit = RateLimit(options.address)
            user = self.headers.get("X-User", "anonymous")
            try:
                admitted, wait = local.limit.ask("callers", [("user", user)])
            except Unavailable as error:
                # Without a decision this API lets the request pass. An API whose upstream must be protected answers 503.
                self.log_message("no decision: %s", error)
                admitted, wait = True, 0
            if admitted:
                self.answer(200, "hello\n", {})
            else:
                # Whole seconds, rounded up: a client that comes back then is admitted.
                self.answer(429, "too many requests\n", {"Retry-After": str(math.ceil(wait))})

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
