"""A stand-in for a chat endpoint: the real protocol over a real socket, well behaved or not."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPLY = "Answer: Biscuit\nSources: 1"
MODELS = {"object": "list", "data": [{"id": name, "object": "model"} for name in ("m", "big")]}
USAGE = {"prompt_tokens": 111, "completion_tokens": 7, "total_tokens": 118}


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # of many clients at once none has to knock twice


class Server:
    """Answers each request by the next step of a script; the last step repeats.

    A step is called with the request's handler and its JSON body.

    Attributes
    ----------
    requests : list
        Bodies.
    headers : list of dict
    connections : set
        Their clients' addresses.
    left : list of float
        When clients were found to have left in the middle of a reply.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.headers = []
        self.connections = set()
        self.left = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                send(self, 200, MODELS)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                outer.connections.add(self.client_address)
                step = outer.script[min(len(outer.requests), len(outer.script)) - 1]
                try:
                    step(self, body)
                except (BrokenPipeError, ConnectionResetError):
                    outer.left.append(time.monotonic())
                    self.close_connection = True

            def log_message(self, *args):
                pass

        self.http = _Listening(("127.0.0.1", 0), Handler)
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


def saying(*pieces, pause=0.0, broken_after=None, usage=True, finish="stop", first=None):
    """Reply with these pieces, as one text or as a stream, whichever is asked for.

    Each part of a stream is a chunk of HTTP, so that one that breaks off can be told from one that
    ends. ``first`` is sent before all.
    """

    def step(handler, body):
        if not body.get("stream"):
            time.sleep(pause * len(pieces))
            good(handler, body, "".join(pieces))
            return
        parts = [first] if first else []
        parts.append(chunk({"role": "assistant", "content": ""}))
        parts += [chunk({"content": piece}) for piece in pieces]
        parts.append(chunk({}, finish))
        if usage and body.get("stream_options", {}).get("include_usage"):
            parts.append(chunk({}, usage=USAGE, choices=False))
        parts.append(b"data: [DONE]\n\n")
        chunked(handler, parts[:broken_after], pause, end=broken_after is None)

    return step


def chunked(handler, parts, pause=0.0, *, end=True):
    """Write a stream in chunks; without its end the connection closes in the middle."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for part in [*parts, b""] if end else parts:
        handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.flush()
        time.sleep(pause if part else 0)
    handler.close_connection = not end


def calling_tools(handler, body, text=None):
    """Call a tool, in either form; with a text beside it where one is given."""
    call = {"index": 0, "id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}  # fmt: skip
    if body.get("stream"):
        parts = [chunk({"role": "assistant", "content": text, "tool_calls": [call]})]
        chunked(handler, [*parts, chunk({}, "tool_calls"), b"data: [DONE]\n\n"])
        return
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                        "choices": [choice], "usage": USAGE})  # fmt: skip


def silent(seconds):
    """Read the request and say nothing; the client's leaving is seen."""

    def step(handler, body):
        handler.connection.settimeout(seconds)
        try:
            if not handler.connection.recv(1):
                raise ConnectionResetError
        except TimeoutError:
            handler.close_connection = True

    return step
