"""A job that reserves a place and an estimate of its tokens, works, and commits the real cost once.

    python3 examples/callers/python/job.py --estimate 50000 --cost 31840 --seconds 1
"""

import time

from options import options as common_options
from ratelimit import RateLimit


def main():
    parser = common_options("deny")
    parser.add_argument("--tenant", default="acme")
    parser.add_argument("--estimate", type=int, default=50000)
    parser.add_argument("--cost", type=int, default=31840, help="what the job has used in the end")
    parser.add_argument("--seconds", type=float, default=0, help="how long the job works")
    options = parser.parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    budget = [("budget", options.tenant)]
    while True:
        answer = limit.reserve("callers", budget, options.estimate, ttl="30m")
        if answer.hold:
            break
        print(f"job waits {answer.seconds:.3f} s", flush=True)
        time.sleep(answer.seconds)
    print("job starts", flush=True)
    cost = 0
    try:
        # Here the work. A job that fails before it used anything releases its hold.
        for _ in range(2):
            time.sleep(options.seconds / 2)
            # Renew at least twice a minute, the rule's period. Without an answer, the place stays until then.
            renewed = limit.renew("callers", budget, answer.hold)
            if renewed.decided and not renewed.admitted:
                print("job lost its place", flush=True)
        cost = options.cost
    finally:
        # Store the id with the job, so that another process can commit it after a crash.
        while not (result := limit.commit("callers", budget, answer.hold, cost)):
            time.sleep(1)
    print(f"job cost {cost}, {result}", flush=True)


if __name__ == "__main__":
    main()
