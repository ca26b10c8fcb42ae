"""The worker with decorators: a function, and a coroutine function, whose calls wait for their turn.

    python3 examples/callers/python/decorated.py --jobs 10
"""

import asyncio
import time

from options import worker_options
from ratelimit import RateLimit
from ratelimit_asyncio import AsyncRateLimit


def main():
    options = worker_options().parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    start = time.monotonic()

    # The third party of each call is an argument of the function.
    @limit.limited("callers", lambda name, job: [(options.key, name)])
    def call(name, job):
        print(f"job {job} after {time.monotonic() - start:.3f} s", flush=True)

    @AsyncRateLimit(limit).limited("callers", lambda name, job: [(options.key, name)])
    async def call_async(name, job):
        print(f"job {job} after {time.monotonic() - start:.3f} s", flush=True)

    for job in range(0, options.jobs, 2):
        call(options.name, job)
        if job + 1 < options.jobs:
            asyncio.run(call_async(options.name, job + 1))


if __name__ == "__main__":
    main()
