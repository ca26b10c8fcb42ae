"""A crawler or a script that calls a third party no more often than the limit admits.

    python3 examples/callers/python/worker.py --jobs 10 --url http://localhost:9000
    python3 examples/callers/python/worker.py --jobs 10 --key third_party_queue
"""

import time
import urllib.error
import urllib.request

from options import worker_options
from ratelimit import RateLimit


def call(url):
    """Calls the third party. Returns its Retry-After if it has had too many calls."""
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 429:
                raise
            return error.headers.get("Retry-After", "1")


def main():
    parser = worker_options()
    parser.add_argument("--url", help="what to call; without it nothing is called")
    options = parser.parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    third_party = [(options.key, options.name)]
    start = time.monotonic()
    for job in range(options.jobs):
        denied = limit.wait("callers", third_party)
        while options.url and (retry_after := call(options.url)):
            # No worker calls it until then.
            time.sleep(limit.pause("callers", third_party, retry_after))
            denied += limit.wait("callers", third_party)
        print(f"job {job} after {time.monotonic() - start:.3f} s, denied {denied}", flush=True)


if __name__ == "__main__":
    main()
