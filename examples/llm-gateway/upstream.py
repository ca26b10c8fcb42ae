"""A stand-in for a language model: answers like POST /v1/chat/completions and reports tokens in `usage`.

A prompt costs one token per word. The answer has as many words as the last message says, at most `max_tokens`:
"Say 50 words" costs 3 + 50 tokens. With `"stream": true` the answer is a stream of events, and the last event has the
usage. "Say nothing and fail" is answered with 500.
"""

import argparse
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        prompt = " ".join(message["content"] for message in request.get("messages", []))
        if "fail" in prompt.split():
            self.answer_json(500, {"error": {"message": "the model has failed"}})
            return
        numbers = [int(word) for word in prompt.split() if word.isdigit()]
        words = min((numbers or [10])[-1], request.get("max_tokens", 4096))
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": words}
        usage["total_tokens"] = sum(usage.values())
        if request.get("stream"):
            self.answer_stream(words, usage, request.get("seconds_per_word", 0))
        else:
            content = " ".join(["word"] * words)
            self.answer_json(200, {"choices": [{"message": {"content": content}}], "usage": usage})

    def answer_json(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer_stream(self, words, usage, seconds_per_word):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for _ in range(words):
            self.send_event(json.dumps({"choices": [{"delta": {"content": "word "}}]}))
            time.sleep(seconds_per_word)
        self.send_event(json.dumps({"choices": [], "usage": usage}))
        self.send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def send_event(self, data):
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    # The default of 5 refuses connections when many requests come at once.
    request_queue_size = 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9000)
    server = Server(("127.0.0.1", parser.parse_args().port), Model)
    print(f"serving on port {server.server_port}", flush=True)
    server.serve_forever()
