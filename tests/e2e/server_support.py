"""Runs `quire serve` for the end-to-end tests, and speaks HTTP to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time

from support import BINARY

START_S = 120


class Refused(AssertionError):
    """A stream was wanted and the answer has another status than 200."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body!r}")
        self.status = status


class Server:
    """`quire serve` on a free port. Its standard error is kept in `log`."""

    def __init__(self, *arguments, port=0, env=None):
        self.process = subprocess.Popen(
            [BINARY, "serve", "--port", str(port), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env={**os.environ, **(env or {})})
        self.lines = []
        self.headers = {}  # of every request, e.g. a key
        self.address = None
        self._serving = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._serving.wait(START_S) or self.address is None:
            self.kill()
            raise AssertionError(f"quire serve did not start: {self.log}")

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.search(r"serving at (https?)://(\[[^]]+\]|[^:\s\"]+):(\d+)", line)
            if match and self.address is None:
                self.scheme, self.host, self.port = match[1], match[2].strip("[]"), int(match[3])
                self.address = f"{match[1]}://{match[2]}:{match[3]}"
                self._serving.set()
        self._serving.set()

    @property
    def log(self):
        return "".join(self.lines)

    def connect(self, timeout=60):
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout,
                                               context=ssl._create_unverified_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body); `body` is sent as JSON unless it is bytes, and JSON comes back parsed."""
        connection = self.connect(timeout)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data,
                               {"Content-Type": "application/json", **self.headers, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            if response.headers.get_content_type() == "application/json":
                text = json.loads(text)
            return response.status, response.headers, text

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def stream(self, path, body, headers=None, timeout=60):
        """The events of a streamed answer, parsed; "[DONE]" is left out but must come."""
        connection = self.connect(timeout)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json", **self.headers, **(headers or {})})
            response = connection.getresponse()
            if response.status != 200:
                raise Refused(response.status, response.read())
            done = False
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                data = line[len(b"data: "):].strip()
                if data == b"[DONE]":
                    done = True
                    break
                yield json.loads(data)
            if not done:
                raise AssertionError("the stream ended without [DONE]")

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions",
                         {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields})

    def metrics(self):
        """{name: sum over labels}"""
        values = {}
        for line in self.get("/metrics")[2].decode().splitlines():
            match = re.match(r"([\w:]+)(?:\{.*\})? (\S+)$", line)
            if match:
                values[match[1]] = values.get(match[1], 0) + float(match[2])
        return values

    def wait_for(self, holds, what, timeout=60):
        """Polls until `holds()`; fails after a time that is far more than it takes."""
        deadline = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come to hold; the log: {self.log}")
            time.sleep(0.02)

    def wait_until_idle(self):
        """Until the engine runs and holds nothing."""
        self.wait_for(lambda: (m := self.metrics())["quire:num_requests_running"] == 0
                      and m["quire:num_requests_waiting"] == 0 and m["quire:kv_cache_usage_perc"] == 0,
                      "an idle engine")

    def memory_kib(self, kind="VmRSS"):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(rf"{kind}:\s+(\d+)", status.read())[1])

    def stop(self, number=signal.SIGTERM, timeout=60):
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout=60):
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


@contextlib.contextmanager
def serving(*arguments, port=0, env=None):
    """A server that must still be in good health at the end."""
    server = Server(*arguments, port=port, env=env)
    try:
        yield server
        if server.process.poll() is None:
            status, _, _ = server.get("/health", headers={})
            if status != 200:
                raise AssertionError(f"the server is not in good health: {server.log}")
            code = server.stop()
            if code != 0:
                raise AssertionError(f"the server ended with {code}: {server.log}")
    finally:
        server.kill()
