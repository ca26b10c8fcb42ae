"""Asks ratelimitd over HTTP (/json). Only the standard library; copy this file into your project."""

import http.client
import json
import time


class Unavailable(Exception):
    """ratelimitd gave no decision. Decide here what your service does then: go on, or fail."""


class RateLimit:
    """One connection, which is kept open. Not for use by several threads at once."""

    def __init__(self, address="127.0.0.1:8080", timeout=2.0):
        self.connection = http.client.HTTPConnection(address, timeout=timeout)

    def ask(self, domain, entries, hits=1):
        """Returns (admitted, seconds): how long to wait before the work, or before the next try."""
        request = {
            "domain": domain,
            "descriptors": [{"entries": [{"key": key, "value": value} for key, value in entries]}],
            "hitsAddend": hits,
        }
        try:
            self.connection.request("POST", "/json", json.dumps(request))
            response = self.connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            # The next request opens a new connection.
            self.connection.close()
            raise Unavailable(error) from error
        if response.status not in (200, 429):
            raise Unavailable(f"{response.status} {body.decode(errors='replace').strip()}")
        answer = json.loads(body)
        if response.status == 200:
            # The delay of a queue (`mode: queue`); no other limit sends one.
            return True, answer.get("dynamicMetadata", {}).get("delay_ms", 0) / 1000
        over = [status for status in answer["statuses"] if status["code"] == "OVER_LIMIT"]
        return False, max(seconds(status.get("durationUntilReset", "1s")) for status in over)

    def wait(self, domain, entries, hits=1):
        """Sleeps until the work may begin. Returns how often it was denied."""
        denied = 0
        while True:
            admitted, wait = self.ask(domain, entries, hits)
            time.sleep(wait)
            if admitted:
                return denied
            denied += 1


def seconds(duration):
    """The seconds of a duration such as "0.2s"."""
    return float(duration.removesuffix("s"))
