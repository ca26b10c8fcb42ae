"""Asks ratelimitd over HTTP (/json, /holds). Only the standard library; copy this file into your project."""

import functools
import http.client
import json
import logging
import random
import threading
import time
from dataclasses import dataclass

log = logging.getLogger("ratelimit")

# Seconds. When ratelimitd does not answer at all, on_failure answers at once for this time, and nothing is sent.
AWAY = 1.0


@dataclass
class Answer:
    admitted: bool
    # Before the work if admitted, else before the next try.
    seconds: float
    # False: ratelimitd gave no decision, and this is the answer of on_failure.
    decided: bool = True
    # What `settle` returns, from a limit with `settle: true`.
    receipt: str = ""
    # What `renew` and `commit` need, from `reserve`.
    hold: str = ""


class Unavailable(Exception):
    """ratelimitd gave no decision. `status` is that of HTTP, or None if there was no answer at all."""

    def __init__(self, reason, status=None):
        super().__init__(reason)
        self.status = status


class RateLimit:
    """Threads can share one object: each thread has its own connection.

    address: "host:port" of the HTTP port.
    on_failure: what to do without a decision, "allow" (fail open) or "deny" (fail closed).
    deadline: the seconds that one decision may take, with all its tries.
    """

    def __init__(self, address, on_failure, deadline=0.25):
        if "/" in address:
            raise ValueError(f"an address is host:port, not {address!r}")
        if on_failure not in ("allow", "deny"):
            raise ValueError(f"on_failure is 'allow' or 'deny', not {on_failure!r}")
        self.address, self.on_failure, self.deadline = address, on_failure, deadline
        self.local = threading.local()
        self.away_until = 0.0
        self.logged = {}

    def ask(self, domain, entries, hits=1):
        """Asks for hits, and again until the deadline. Never fails: without a decision on_failure answers.

        A try whose answer was lost may have been counted. Then the limit admits less, never more.
        """
        return self.decide("/json", request(domain, [entries], hits))[0]

    def ask_all(self, domain, descriptors, hits=1):
        """Asks for hits of each descriptor, a list of entries: all of them, or none."""
        return self.decide("/json", request(domain, descriptors, hits))[0]

    def ask_each(self, requests):
        """Asks up to 256 (domain, entries, hits) in one call. Returns an answer for each, as if it came alone."""
        batch = {"requests": [request(domain, [entries], hits) for domain, entries, hits in requests]}
        return self.decide("/json", batch)

    def reserve(self, domain, entries, hits, ttl="1h"):
        """Asks for a job's estimate. The job ends within the ttl. Then `commit` its real cost."""
        return self.decide("/holds", request(domain, [entries], hits) | {"ttl": ttl})[0]

    def renew(self, domain, entries, hold):
        """Keeps a job's place of a limit with `concurrency`. Not admitted: it has ended, and no other is free."""
        return self.decide("/holds/renew", request(domain, [entries], 0) | {"id": hold})[0]

    def commit(self, domain, entries, hold, hits):
        """Books the real cost of a job once, however often you call this; 0 releases the hold.

        Returns the result. Without an answer it is "": then call it again, later.
        """
        end = time.monotonic() + self.deadline
        body = request(domain, [entries], hits) | {"id": hold}
        try:
            return retry(end, lambda: self.post("/holds/commit", body, end))[1]["result"]
        except Unavailable as error:
            self.warn("not committed", error)
            return ""

    def decide(self, path, body):
        """The answers to a call."""
        count = len(body.get("requests", [body]))
        if time.monotonic() < self.away_until:
            return [self.undecided()] * count
        end = time.monotonic() + self.deadline
        try:
            _, answer = retry(end, lambda: self.post(path, body, end))
        except Unavailable as error:
            self.warn(f"no decision, on_failure is {self.on_failure}", error)
            if error.status is None:
                self.away_until = time.monotonic() + AWAY
            return [self.undecided()] * count
        return [self.read(one) for one in answer.get("responses", [answer])]

    def read(self, answer):
        if "error" in answer:
            self.warn(f"no decision, on_failure is {self.on_failure}", answer["error"])
            return self.undecided()
        metadata = answer.get("dynamicMetadata", {})
        if answer["overallCode"] == "OK":
            # The delay is that of a queue (`mode: queue`); no other limit sends one.
            wait = metadata.get("delay_ms", 0) / 1000
            return Answer(True, wait, receipt=metadata.get("receipt", ""), hold=answer.get("id", ""))
        # Without `response.dynamic_metadata`, and for a cost that never fits, there is no time.
        return Answer(False, metadata["retry_after_ms"] / 1000 if "retry_after_ms" in metadata else AWAY)

    def undecided(self):
        allow = self.on_failure == "allow"
        return Answer(allow, 0 if allow else AWAY, decided=False)

    def settle(self, domain, entries, receipt, hits):
        """Books the real cost of what `ask` admitted with the same entries. False: lost, the estimate stays.

        A settle that arrives twice is booked twice. So only the connection is tried again, never the request.
        """
        end = time.monotonic() + self.deadline
        try:
            retry(end, lambda: self.connect(end))
            self.post("/json", request(domain, [[*entries, ("ratelimitd_receipt", receipt)]], hits), end)
        except Unavailable as error:
            self.warn("not settled", error)
            return False
        return True

    def wait(self, domain, entries, hits=1):
        """Sleeps until the work may begin. Returns how often it was denied.

        More hits than the limit, or its burst, can ever hold wait forever.
        """
        denied = 0
        while True:
            answer = self.ask(domain, entries, hits)
            time.sleep(answer.seconds)
            if answer.admitted:
                return denied
            denied += 1

    def pause(self, domain, entries, retry_after):
        """Reports the Retry-After of a third party: until then no caller is admitted by a limit with `feedback`.

        Returns the seconds to sleep before the next `wait`: without a decision you wait alone.
        """
        if self.ask(domain, [*entries, ("ratelimitd_pause", retry_after)]).decided:
            return 0
        return int(retry_after) if retry_after.isdigit() else AWAY

    def limited(self, domain, entries):
        """A decorator: each call waits for its turn. `entries` is a function of the arguments of the call."""

        def decorate(function):
            @functools.wraps(function)
            def call(*arguments, **named):
                self.wait(domain, entries(*arguments, **named))
                return function(*arguments, **named)

            return call

        return decorate

    def warn(self, what, reason):
        """Logs at most one line per second for each kind of event."""
        second = int(time.monotonic())
        if second != self.logged.get(what):
            self.logged[what] = second
            log.warning("%s: %s", what, reason)

    def connect(self, end):
        """Makes a new connection for this thread."""
        connection = http.client.HTTPConnection(self.address, timeout=self.timeout(end))
        self.local.connection = connection
        try:
            connection.connect()
        except OSError as error:
            raise Unavailable(error) from error
        return connection

    def post(self, path, body, end):
        """One try: the status and the answer."""
        connection = getattr(self.local, "connection", None)
        if connection is None or connection.sock is None:
            connection = self.connect(end)
        try:
            connection.sock.settimeout(self.timeout(end))
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unavailable(repr(error)) from error
        # In JSON, 503 is a commit's result.
        if response.status in (200, 429, 503) and response.getheader("Content-Type") == "application/json":
            return response.status, json.loads(body)
        raise Unavailable(f"{response.status} {body.decode(errors='replace').strip()}", response.status)

    def timeout(self, end):
        """Half of the deadline at most, so that a second try has time."""
        return max(0.001, min(self.deadline / 2, end - time.monotonic()))


def request(domain, descriptors, hits):
    def entry(key, value):
        return {"key": key, "value": str(value)}

    listed = [{"entries": [entry(*pair) for pair in entries], "hitsAddend": hits} for entries in descriptors]
    return {"domain": domain, "descriptors": listed}


def retry(end, attempt):
    """Tries until `attempt` succeeds, with growing pauses. A status below 500 would not change, so it is final."""
    pause = 0.02
    while True:
        try:
            return attempt()
        except Unavailable as error:
            if time.monotonic() + pause >= end or (error.status or 500) < 500:
                raise
        time.sleep(random.uniform(pause / 2, pause))
        pause *= 2
