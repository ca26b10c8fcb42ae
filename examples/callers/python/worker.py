"""A crawler, or a task of Celery, that calls a third party and never exceeds what the third party allows.

    python3 examples/callers/python/worker.py --jobs 10
    python3 examples/callers/python/worker.py --jobs 10 --key third_party_queue
"""

import argparse
import time

from ratelimit import RateLimit


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--address", default="127.0.0.1:8080", help="the HTTP port of ratelimitd")
    arguments.add_argument("--key", default="third_party", help="third_party, or third_party_queue")
    arguments.add_argument("--name", default="api.example.com", help="the third party")
    arguments.add_argument("--jobs", type=int, default=10)
    options = arguments.parse_args()

    limit = RateLimit(options.address)
    start = time.monotonic()
    for job in range(options.jobs):
        denied = limit.wait("callers", [(options.key, options.name)])
        # Here the call to the third party.
        print(f"job {job} after {time.monotonic() - start:.3f} s, denied {denied}", flush=True)


if __name__ == "__main__":
    main()
