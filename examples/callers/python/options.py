"""The arguments that all programs of this folder have."""

import argparse


def options(on_failure):
    """A parser. `on_failure` is the default of the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1:8080", help="the HTTP port of ratelimitd")
    parser.add_argument(
        "--on-failure",
        choices=["allow", "deny"],
        default=on_failure,
        help="without a decision: allow (fail open) or deny (fail closed); the default is %(default)s",
    )
    parser.add_argument("--deadline", type=float, default=0.25, help="seconds for one decision, with its tries")
    return parser


def worker_options():
    """A parser for programs that call a third party. Without a decision they wait until ratelimitd is back."""
    parser = options("deny")
    parser.add_argument("--key", default="third_party", help="third_party, or third_party_queue")
    parser.add_argument("--name", default="api.example.com", help="the third party")
    parser.add_argument("--jobs", type=int, default=10)
    return parser
