"""A crawler or a script that calls a third party no more often than the limit admits.

    python3 examples/callers/python/worker.py --jobs 10
    python3 examples/callers/python/worker.py --jobs 10 --key third_party_queue
"""

import time

from options import worker_options
from ratelimit import RateLimit


def main():
    options = worker_options().parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    start = time.monotonic()
    for job in range(options.jobs):
        denied = limit.wait("callers", [(options.key, options.name)])
        # Here the call to the third party.
        print(f"job {job} after {time.monotonic() - start:.3f} s, denied {denied}", flush=True)


if __name__ == "__main__":
    main()
