"""Asks ratelimitd with gRPC for Python: TARGET REQUEST [AUTHORITY].

REQUEST is a message in hexadecimal. Prints that of the answer, or the status code.
"""

import sys

import grpc

target, request, *authority = sys.argv[1:]
options = [("grpc.default_authority", name) for name in authority]
with grpc.insecure_channel(target, options) as channel:
    call = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    try:
        print(call(bytes.fromhex(request), timeout=10).hex())
    except grpc.RpcError as error:
        print(error.code().name)
