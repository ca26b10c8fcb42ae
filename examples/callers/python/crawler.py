"""The worker for asyncio: several tasks call a third party at the same time, and together keep to its limit.

    python3 examples/callers/python/crawler.py --jobs 10 --tasks 3
"""

import asyncio
import time

from options import worker_options
from ratelimit import RateLimit
from ratelimit_asyncio import AsyncRateLimit


async def crawl(options):
    limit = AsyncRateLimit(RateLimit(options.address, options.on_failure, options.deadline))
    start = time.monotonic()
    jobs = iter(range(options.jobs))

    async def task():
        for job in jobs:
            denied = await limit.wait("callers", [(options.key, options.name)])
            # Here the call to the third party.
            print(f"job {job} after {time.monotonic() - start:.3f} s, denied {denied}", flush=True)

    await asyncio.gather(*(task() for _ in range(options.tasks)))


if __name__ == "__main__":
    parser = worker_options()
    parser.add_argument("--tasks", type=int, default=3)
    asyncio.run(crawl(parser.parse_args()))
