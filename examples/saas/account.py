"""A customer's account page: what is used of each limit. Needs no packages.

    python3 account.py --port 9002 --ratelimitd http://127.0.0.1:8080
    curl localhost:9002/accounts/acme
"""

import argparse
import html
import json
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT_S = 2


def usage(url, customer):
    """The limits of a customer, as `POST /usage` answers. Reading charges nothing."""
    entries = [{"key": "customer", "value": customer}]
    body = json.dumps({"domain": "shop", "descriptors": [{"entries": entries}]}).encode()
    request = urllib.request.Request(f"{url}/usage", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)["usage"][0]["limits"]


def line(limit):
    if limit["unlimited"]:
        return f"<p>{html.escape(limit['name'])}: {limit['used']:,} used, no limit"
    bar = f"<progress max={limit['limit']} value={min(limit['used'], limit['limit'])}></progress>"
    end = limit["window_end"] or limit["resets_at"]
    text = f"{limit['used']:,} of {limit['limit']:,} used"
    plan = f", plan {html.escape(limit['tier'])}" if limit["tier"] else ""
    return f"<p>{html.escape(limit['name'])}: {text}{plan} {bar}" + (f" until {end}" if end else "")


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        # Your page takes the customer from the session, never from the address.
        path = urllib.parse.urlsplit(self.path).path
        customer = urllib.parse.unquote(path.removeprefix("/accounts/"))
        try:
            lines = [line(limit) for limit in usage(self.server.ratelimitd, customer)]
            status, text = 200, "\n".join(lines) or "<p>no limits"
        except (OSError, urllib.error.URLError) as error:
            # The page works without its numbers.
            self.log_error("no usage: %s", error)
            status, text = 200, "<p>Usage is not available now."
        body = f"<!doctype html><title>Usage</title>\n{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=9002)
    parser.add_argument("--ratelimitd", default="http://127.0.0.1:8080", help="the HTTP port of ratelimitd")
    arguments = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Page)
    server.ratelimitd = arguments.ratelimitd
    server.serve_forever()


main()
