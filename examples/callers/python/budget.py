"""A budget of tokens in two steps: an estimate before the call of a language model, the real cost after it.

    python3 examples/callers/python/budget.py --requests 3 --estimate 2000 --cost 53
"""

from options import options as common_options
from ratelimit import RateLimit


def main():
    parser = common_options("deny")
    parser.add_argument("--tenant", default="acme")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--estimate", type=int, default=2000)
    parser.add_argument("--cost", type=int, default=53, help="what the model reports in the end")
    options = parser.parse_args()
    limit = RateLimit(options.address, options.on_failure, options.deadline)
    tenant = [("tenant", options.tenant)]
    for request in range(options.requests):
        answer = limit.ask("callers", tenant, hits=options.estimate)
        if not answer.admitted:
            print(f"request {request} denied, next try in {answer.seconds:.3f} s", flush=True)
            continue
        cost = 0
        try:
            # Here the call of the model. A call that fails costs nothing.
            cost = options.cost
        finally:
            settled = limit.settle("callers", tenant, answer.receipt, cost)
        print(f"request {request} cost {cost}, {'settled' if settled else 'not settled'}", flush=True)


if __name__ == "__main__":
    main()
