"""A stand-in for a chat endpoint: the real protocol over a real socket, well behaved or not."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPLY = "Answer: Biscuit\nSources: 1"
USAGE = {"prompt_tokens": 111, "completion_tokens": 7, "total_tokens": 118}


class Server:
    """Answers each request by the next step of a script; the last step repeats.

    A step is called with the request's handler and its JSON body.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.headers = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                step = outer.script[min(len(outer.requests), len(outer.script)) - 1]
                with suppress(BrokenPipeError, ConnectionResetError):
                    step(self, body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.http.shutdown()
        self.http.server_close()


def send(handler, status, body, content_type="application/json", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def good(handler, body, text=REPLY):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                        "choices": [choice], "usage": USAGE})  # fmt: skip


def failing(status, message="no", **headers):
    return lambda h, body: send(h, status, {"error": {"message": message}}, **headers)


def garbage(handler, body):
    send(handler, 200, b"<html>proxy says hi</html>", "text/html")


def truncated_json(handler, body):
    send(handler, 200, b'{"choices": [', "application/json")


def other_json(handler, body):
    send(handler, 200, {"hello": "world"})


def hang(handler, body):
    time.sleep(3)


def drop(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def chunk(delta, finish=None, usage=None, choices=True):
    choice = [{"index": 0, "delta": delta, "finish_reason": finish}] if choices else []
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choice, "usage": usage}  # fmt: skip
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def streaming(*, end=True, usage=True, pause=0.0):
    def step(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        parts = [chunk({"role": "assistant", "content": ""})]
        parts += [chunk({"content": REPLY[i : i + 5]}) for i in range(0, len(REPLY), 5)]
        if end:
            parts.append(chunk({}, "stop"))
            if usage and body.get("stream_options", {}).get("include_usage"):
                parts.append(chunk({}, usage=USAGE, choices=False))
            parts.append(b"data: [DONE]\n\n")
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(pause)

    return step
