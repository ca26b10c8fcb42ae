"""The form of ratelimit.py for asyncio: it asks in threads of its own and sleeps in the event loop."""

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor


class AsyncRateLimit:
    """`limit` is a RateLimit. At most `threads` calls ask at the same time, and each takes about a millisecond."""

    def __init__(self, limit, threads=4):
        self.limit = limit
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="ratelimit")

    async def ask(self, domain, entries, hits=1):
        return await self.run(self.limit.ask, domain, entries, hits)

    async def settle(self, domain, entries, receipt, hits):
        return await self.run(self.limit.settle, domain, entries, receipt, hits)

    async def pause(self, domain, entries, retry_after):
        return await self.run(self.limit.pause, domain, entries, retry_after)

    async def run(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)

    async def wait(self, domain, entries, hits=1):
        """Sleeps until the work may begin. Returns how often it was denied."""
        denied = 0
        while True:
            answer = await self.ask(domain, entries, hits)
            await asyncio.sleep(answer.seconds)
            if answer.admitted:
                return denied
            denied += 1

    def limited(self, domain, entries):
        """A decorator: each call waits for its turn. `entries` is a function of the arguments of the call."""

        def decorate(function):
            @functools.wraps(function)
            async def call(*arguments, **named):
                await self.wait(domain, entries(*arguments, **named))
                return await function(*arguments, **named)

            return call

        return decorate
