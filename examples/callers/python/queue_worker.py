"""A worker of a queue with a few slots. A job that must wait goes back to the queue with the time of its turn, and its
slot takes another job.

    python3 examples/callers/python/queue_worker.py --slots 2 --jobs 10
    python3 examples/callers/python/queue_worker.py --slots 2 --jobs 10 --key third_party_queue

A task of Celery does the same with `retry`, on any broker. Keep `countdown` below the `visibility_timeout` of Redis or
SQS, or the broker delivers the task again:

    @app.task(bind=True, max_retries=None)
    def call(self, name, admitted=False):
        if not admitted:
            answer = limit.ask("callers", [("third_party_queue", name)])
            if not answer.admitted or answer.seconds > 0:
                raise self.retry(args=[name, answer.admitted], countdown=answer.seconds)
        ...  # Here the call to the third party.
"""

import heapq
import itertools
import logging
import sys
import threading
import time
from dataclasses import dataclass

from options import worker_options
from ratelimit import RateLimit

log = logging.getLogger("worker")


@dataclass
class Job:
    number: int
    name: str
    admitted: bool = False


class DelayQueue:
    """Jobs, each of which is due at a time. In your service this is the queue that you have."""

    def __init__(self):
        self.jobs, self.order = [], itertools.count()
        self.unfinished = 0
        self.changed = threading.Condition()

    def put(self, job, seconds=0.0):
        with self.changed:
            heapq.heappush(self.jobs, (time.monotonic() + seconds, next(self.order), job))
            self.changed.notify()

    def take(self):
        """The next job when it is due, or None after the last job."""
        with self.changed:
            while self.unfinished:
                pause = self.jobs[0][0] - time.monotonic() if self.jobs else None
                if pause is not None and pause <= 0:
                    return heapq.heappop(self.jobs)[2]
                self.changed.wait(pause)

    def finish(self):
        with self.changed:
            self.unfinished -= 1
            self.changed.notify_all()


def work(queue, limit, key, start):
    """One slot."""
    while job := queue.take():
        if not job.admitted:
            answer = limit.ask("callers", [(key, job.name)])
            if not answer.admitted or answer.seconds > 0:
                log.info("put off %d for %.6f s", job.number, answer.seconds)
                # A job with a place in a queue (`mode: queue`) is admitted already, and does not ask again.
                job.admitted = answer.admitted
                queue.put(job, answer.seconds)
                continue
        # Here the call to the third party.
        log.info("job %d after %.3f s, %s", job.number, time.monotonic() - start, job.name)
        queue.finish()


def main():
    parser = worker_options()
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    queue = DelayQueue()
    queue.unfinished = options.jobs
    for number in range(options.jobs):
        # Every second half of the jobs is for another third party, which has a limit of its own.
        queue.put(Job(number, options.name if number < options.jobs / 2 else "other." + options.name))
    start = time.monotonic()
    arguments = (queue, limit, options.key, start)
    slots = [threading.Thread(target=work, args=arguments) for _ in range(options.slots)]
    for slot in slots:
        slot.start()
    for slot in slots:
        slot.join()


if __name__ == "__main__":
    main()
