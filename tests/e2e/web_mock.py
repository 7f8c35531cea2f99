"""A server with the API that the web page uses, whose answers a test writes: what a model would not
say on demand (hostile Markdown, reasoning, broken streams, 401, 429)."""

import contextlib
import http.server
import json
import threading
import urllib.parse


class MockServer:
    """`page(path)` gives (headers, body) of the page's own files, or None.

    `script` holds what comes next, one item a chat completion; each is called with the Reply and the
    request's fields. Without an item the answer is "Hello.".
    """

    def __init__(self, page):
        self.page = page
        self.script = []
        self.requests = []  # the fields of each chat completion asked for
        self.key = None  # the API key to ask for
        self.model = "mock/model-1"
        self.adapters = []  # what /v1/models says behind the model
        self.metrics = ""
        self.metrics_asked = 0
        mock = self

        class Handler(_Handler):
            server_mock = mock

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Reply:
    """Writes one streamed answer."""

    def __init__(self, handler):
        self._handler = handler
        self._started = False

    def error(self, status, message, **headers):
        body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": status}}).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._handler.send(status, body, {"Content-Type": "application/json", **headers})

    def raw(self, data):
        """Bytes of the event stream; False once the client has gone."""
        if not self._started:
            self._started = True
            self._handler.send_response(200)
            self._handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self._handler.end_headers()
        try:
            self._handler.wfile.write(data)
            self._handler.wfile.flush()
        except OSError:
            return False
        return True

    def event(self, value):
        return self.raw(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    def delta(self, finish=None, **fields):
        return self.event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})

    def end(self, finish="stop", prompt=12, output=5, cached=8):
        self.delta(finish=finish)
        self.event({"choices": [], "usage": {
            "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached}}})
        self.raw(b"data: [DONE]\n\n")

    def say(self, *pieces, **end):
        """A whole answer in pieces."""
        self.delta(role="assistant", content="")
        for piece in pieces:
            if not self.delta(content=piece):
                return
        self.end(**end)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # each answer ends with its connection
    server_mock = None

    def log_message(self, *_):
        pass

    def send(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # a page that was closed meanwhile
            self.wfile.write(body)

    def refused(self):
        key = self.server_mock.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return False
        Reply(self).error(401, "Incorrect API key provided.")
        return True

    def do_GET(self):
        mock = self.server_mock
        path = urllib.parse.urlsplit(self.path).path
        own = mock.page(path)
        if own is not None:
            headers, body = own
            self.send(200, body, headers)
        elif self.refused():
            pass
        elif path == "/v1/models":
            models = json.dumps({"object": "list", "data": [{"id": mock.model}, *mock.adapters]}).encode()
            self.send(200, models, {"Content-Type": "application/json"})
        elif path == "/metrics":
            mock.metrics_asked += 1
            text = mock.metrics() if callable(mock.metrics) else mock.metrics
            self.send(200, text.encode(), {"Content-Type": "text/plain; version=0.0.4"})
        else:
            Reply(self).error(404, f"There is no {path}.")

    def do_POST(self):
        mock = self.server_mock
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        mock.requests.append(fields)
        answer = mock.script.pop(0) if mock.script else lambda reply, _: reply.say("Hello.")
        answer(Reply(self), fields)
