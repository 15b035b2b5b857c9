"""A server that gives out the page of the real one and answers its API by script.

A script is a list of steps. `text`, `thought`, `call` and `last` make chunks as Lily sends them; a
number waits so many seconds, an `Event` until it is set; bytes are sent as they are; `HANG_UP` breaks
the connection, `END` ends the response without `[DONE]`.
"""

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG_UP = object()
END = object()
WAIT_LIMIT_S = 20

USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100},
}
TIMINGS = {"predicted_n": 30, "predicted_per_second": 42.5}


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], "usage": None, **more}


def text(piece):
    return chunk({"content": piece})


def thought(piece):
    return chunk({"reasoning_content": piece})


def call(name, arguments, index=0):
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})


def last(finish="stop"):
    return [
        chunk({}, finish, timings=TIMINGS),
        {"object": "chat.completion.chunk", "choices": [], "usage": USAGE},
        b"data: [DONE]\n\n",
    ]


def answer(*pieces, finish="stop"):
    """A complete answer: strings are text, everything else is a step."""
    return [text(piece) if isinstance(piece, str) else piece for piece in pieces] + last(finish)


def error(status, body, **headers):
    """A refusal; `body` is a message, or bytes to send as they are."""
    if isinstance(body, str):
        body = json.dumps({"error": {"message": body, "type": "invalid_request_error", "param": None, "code": None}}).encode()
    return {"status": status, "body": body, "headers": headers}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A browser that leaves in the middle of an answer is no fault of a test."""


class ScriptedServer:
    def __init__(self, page_url):
        with urllib.request.urlopen(page_url, timeout=30) as response:
            self.page = response.read()
            skipped = {"date", "content-length", "connection", "x-request-id"}
            self.headers = [(k, v) for k, v in response.headers.items() if k.lower() not in skipped]
        owner = self

        class Handler(_Handler):
            server_state = owner

        self.http = _Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.reset()
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def reset(self):
        self.model = {"id": "scripted-model", "object": "model", "max_model_len": 1000}
        self.key = None
        #: One script for each request; the last one stays.
        self.scripts = [answer("Hello.")]
        self.requests = []
        self.request_headers = []
        self.paths = []
        self.left = threading.Event()

    def next_script(self):
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]

    def close(self):
        self.http.shutdown()
        self.http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state = None

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refused(self):
        state = self.server_state
        if state.key is None or self.headers.get("authorization") == f"Bearer {state.key}":
            return False
        self.reply(401, error(401, "no valid API key was sent")["body"], [("content-type", "application/json")])
        return True

    def do_GET(self):
        state = self.server_state
        state.paths.append(self.path)
        if self.path == "/":
            self.reply(200, state.page, state.headers)
        elif self.path == "/v1/models":
            if not self.refused():
                body = json.dumps({"object": "list", "data": [state.model]}).encode()
                self.reply(200, body, [("content-type", "application/json")])
        else:
            self.reply(404, b"{}", [])

    def do_POST(self):
        state = self.server_state
        state.paths.append(self.path)
        body = self.rfile.read(int(self.headers["content-length"]))
        state.requests.append(json.loads(body))
        state.request_headers.append(dict(self.headers))
        if self.refused():
            return
        script = state.next_script()
        if isinstance(script, dict):
            headers = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in script["headers"].items()}}
            self.reply(script["status"], script["body"], headers.items())
            return
        self.stream(script)

    def stream(self, script):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for step in script:
                if step is HANG_UP:
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                if step is END:
                    break
                if isinstance(step, (int, float)):
                    time.sleep(step)
                elif isinstance(step, threading.Event):
                    step.wait(WAIT_LIMIT_S)
                else:
                    self.piece(step if isinstance(step, bytes) else f"data: {json.dumps(step)}\n\n".encode())
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server_state.left.set()
            self.close_connection = True

    def piece(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()
