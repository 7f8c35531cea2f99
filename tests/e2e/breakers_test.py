"""What brought other servers down, one by one and then all at once beside healthy streams.

Each breaker does something that a server must survive and says what the answer must be, where there
is one. After all of them the server runs, has leaked nothing, and the healthy streams saw nothing.
"""

import concurrent.futures
import json
import random
import socket
import ssl
import struct
import time
import unittest

from healthy_streams import CHAT, HealthyStreams
from server_support import serving
from support import CliTest

COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "define apple"}]


class Raw:
    """A socket to the server."""

    def __init__(self, server, timeout=60):
        self.socket = socket.create_connection((server.host, server.port), timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """False where the server has closed its side already, which it may."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def answer(self):
        """All that comes until the server closes or says nothing more for now; may be empty."""
        received = b""
        try:
            while piece := self.socket.recv(65536):
                received += piece
                if b"\r\n\r\n" in received:
                    head, _, body = received.partition(b"\r\n\r\n")
                    for line in head.split(b"\r\n"):
                        if line.lower().startswith(b"content-length:") and len(body) >= int(line.split(b":")[1]):
                            return received
        except OSError:
            pass
        return received

    def status(self):
        """The status of the answer; None where the connection was closed without one."""
        received = self.answer()
        return int(received.split()[1]) if received.startswith(b"HTTP/1.") else None

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def post_head(path, length, extra=b""):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n" % (
        path.encode(), length, extra)


def post_bytes(path, body):
    return post_head(path, len(body)) + body


def fields_are_refused(path, cases):
    """A breaker for each of `cases`: fields that must be refused with 400."""
    base = {"messages": MESSAGES} if path == CHAT else {"prompt": "define apple"}

    def breaker(fields):
        def run(server):
            status, _, body = server.post(path, {**base, **fields})
            assert status == 400, (fields, status, body)
            assert body["error"]["message"], body
        return run
    return {f"{path} {json.dumps(fields)[:70]}": breaker(fields) for fields in cases}


HUGE = 10**30
PARAMETERS = [
    {"n": -1}, {"n": 0}, {"n": 10**9}, {"n": HUGE}, {"n": 1.5}, {"n": "2"}, {"n": True},
    {"max_tokens": -1}, {"max_tokens": 0}, {"max_tokens": 2**63}, {"max_tokens": 1e300}, {"max_tokens": []},
    {"temperature": -1}, {"temperature": 1e308}, {"temperature": "hot"}, {"top_p": 0}, {"top_p": 1.01},
    {"top_k": -2}, {"top_k": 2**40}, {"min_p": -0.1}, {"min_p": 2}, {"repetition_penalty": 0},
    {"presence_penalty": 3}, {"frequency_penalty": -3}, {"seed": "x"}, {"seed": 2**70},
    {"stop": ["x" * 2**20]}, {"stop": [""]}, {"stop": ["a"] * 10**4}, {"stop": 5},
    {"stop_token_ids": [-1]}, {"stop_token_ids": [2**31]}, {"stop_token_ids": [10**6]},
    {"logit_bias": {"x": 1}}, {"logit_bias": {"99999999": 1}}, {"logit_bias": {"1": 1e6}}, {"logit_bias": [1]},
    {"min_tokens": -1}, {"min_tokens": 100, "max_tokens": 10}, {"stream": "yes"}, {"stream_options": []},
    {"timeout": -1}, {"timeout": "soon"}, {"priority": "high"}, {"cache_salt": 5}, {"user": []},
]
CHAT_ONLY = [
    {"top_logprobs": -1, "logprobs": True}, {"top_logprobs": 10**9, "logprobs": True}, {"logprobs": "all"},
    {"response_format": {"type": "xml"}}, {"response_format": {"json_object": False}},
    {"response_format": False}, {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 7}}}},
    {"guided_regex": "(((("}, {"guided_json": {"$ref": "#/loop"}}, {"structured_outputs": {"regex": "(a+"}},
    {"chat_template_kwargs": {"messages": []}}, {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
    {"chat_template_kwargs": {"tools": 1}}, {"chat_template_kwargs": "x"}, {"chat_template": "{% for i in x %}"},
    {"messages": []}, {"messages": "hello"}, {"messages": [{}]},
    {"messages": [{"role": 5, "content": "a"}]}, {"messages": [{"role": "user", "content": {"a": 1}}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
    {"tools": "all"}, {"tools": [{"type": "function"}]}, {"tool_choice": "sometimes"},
    {"tool_choice": {"type": "function", "function": {"name": "missing"}}, "tools": []},
]
COMPLETIONS_ONLY = [
    {"prompt": []}, {"prompt": [[]]}, {"prompt": [-1]}, {"prompt": [2**31]}, {"prompt": [10**9]}, {"prompt": {"a": 1}},
    {"prompt": [1, "a"]}, {"prompt": [1.5]}, {"prompt": [[1], "a"]}, {"prompt": ""}, {"prompt": "word " * 10**5},
    {"prompt": [1] * 10**5}, {"logprobs": -1}, {"logprobs": 10**6}, {"best_of": 7}, {"suffix": "end"}, {"echo": "x"},
]

BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a string": b'"prompt"',
    "null": b"null",
    "NaN": b'{"prompt": "a", "temperature": NaN}',
    "a number beyond doubles": b'{"prompt": "a", "temperature": 1e999}',
    "deep lists": b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}",
    "deep objects": b'{"a":' * 50000 + b"1" + b"}" * 50000,
    "invalid UTF-8": b'{"prompt": "\xff\xfe\xc0\x80"}',
    "a lone surrogate": b'{"prompt": "\\ud800 alone"}',
    "a NUL": b'{"prompt": "a"}\x00',
    "two values": b'{"prompt": "a"}{"prompt": "b"}',
    "many keys": b"{" + b",".join(b'"k%d": %d' % (i, i) for i in range(200000)) + b"}",
}


def body_is_refused(body):
    def run(server):
        with Raw(server) as raw:
            raw.send(post_bytes(COMPLETIONS, body))
            status = raw.status()
            assert status == 400, status
    return run


def raw_gives(data, *statuses):
    """Sends bytes and expects one of these statuses, None for a closed connection."""
    def run(server):
        with Raw(server) as raw:
            raw.send(data)
            raw.socket.shutdown(socket.SHUT_WR)
            status = raw.status()
            assert status in statuses, status
    return run


def a_hundred_megabytes(server):
    with Raw(server) as raw:
        piece = b"x" * 2**20
        raw.send(post_head(COMPLETIONS, 100 * 2**20))
        for _ in range(100):
            if not raw.send(piece):
                break
        assert raw.status() in (413, None)


def a_hundred_megabytes_in_chunks(server):
    with Raw(server) as raw:
        raw.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
        for _ in range(100):
            if not raw.send(piece):
                break
        assert raw.status() in (413, None)


def a_header_flood(server):
    with Raw(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for i in range(20000):
            if not raw.send(b"X-Flood-%d: %s\r\n" % (i, b"y" * 100)):
                break
        assert raw.status() in (431, 400, None)


def a_slow_loris(server):
    """Many connections that each send a byte now and then, and never a whole request."""
    raws = [Raw(server) for _ in range(200)]
    try:
        for byte in b"GET / HT":
            for raw in raws:
                raw.send(bytes([byte]))
            time.sleep(0.05)
        assert server.get("/health")[0] == 200
    finally:
        for raw in raws:
            raw.socket.close()


def half_closed(server):
    with Raw(server) as raw:
        raw.send(post_bytes(COMPLETIONS, json.dumps({"prompt": "a", "max_tokens": 200, "ignore_eos": True}).encode()))
        raw.socket.shutdown(socket.SHUT_WR)
        raw.answer()  # an answer or none: whether a half-closed client has gone is the server's to say


def a_port_scan(server):
    for _ in range(200):
        Raw(server).reset()
    for _ in range(50):
        with Raw(server):
            pass


def tls_to_a_plain_port(server):
    context = ssl._create_unverified_context()
    with Raw(server) as raw:
        try:
            context.wrap_socket(raw.socket)
            raise AssertionError("TLS was spoken on a plain port")
        except (ssl.SSLError, OSError):
            pass


def disconnects_at_every_stage(server):
    body = json.dumps({"messages": MESSAGES, "stream": True, "max_tokens": 300, "ignore_eos": True, "n": 4}).encode()
    request = post_bytes(CHAT, body)
    for at in [1, 10, 40, len(request) - len(body), len(request) - 1, len(request)]:
        for reset in [False, True]:
            raw = Raw(server)
            raw.send(request[:at])
            raw.reset() if reset else raw.socket.close()
    for _ in range(10):  # and in the middle of the answer
        raw = Raw(server)
        raw.send(request)
        raw.socket.recv(random.randint(1, 2000))
        raw.reset()


def pipelined(server):
    with Raw(server) as raw:
        raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        received = b""
        while received.count(b"HTTP/1.1 200") < 20:
            piece = raw.socket.recv(65536)
            assert piece, received
            received += piece


def a_flood_behind_a_stream(server):
    """What is sent early is kept up to a limit; beyond it the server reads on when it has answered."""
    with Raw(server) as raw:
        raw.send(post_bytes(COMPLETIONS, json.dumps(
            {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 8}).encode()))
        raw.socket.recv(100)
        for _ in range(4):
            if not raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000):
                break


def a_reader_that_does_not_read(server):
    raws = []
    for _ in range(8):
        raw = Raw(server)
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.send(post_bytes(COMPLETIONS, json.dumps(
            {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True, "n": 4, "logprobs": 5}).encode()))
        raws.append(raw)
    time.sleep(0.5)
    assert server.get("/health")[0] == 200
    for raw in raws:
        raw.reset()


def stop_strings_of_every_kind(server):
    status, _, body = server.post(COMPLETIONS, {"prompt": "define apple", "max_tokens": 50, "stop": ["x" * 1024] * 4})
    assert status == 200, body


def unicode_of_every_kind(server):
    for text in ["\x00", "\u202e", "\ufdfa" * 100, "\U0001F468\u200D\U0001F469\u200D\U0001F467" * 50, "a\u0300" * 500]:
        status, _, body = server.post(COMPLETIONS, {"prompt": text, "max_tokens": 1})
        assert status in (200, 400), body


BREAKERS = {
    **fields_are_refused(CHAT, PARAMETERS + CHAT_ONLY),
    **fields_are_refused(COMPLETIONS, PARAMETERS + COMPLETIONS_ONLY),
    **{f"body: {name}": body_is_refused(body) for name, body in BODIES.items()},
    "a bad chunk size": raw_gives(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", 400, None),
    "a huge chunk size": raw_gives(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}", 400, 413,
        None),
    "a negative length": raw_gives(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n{}", 400, None),
    "two lengths": raw_gives(
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, None),
    "a length and chunks": raw_gives(
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, None),
    "no HTTP": raw_gives(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300, 400, None),
    "garbage": raw_gives(bytes(range(256)) * 20, 400, None),
    "a long path": raw_gives(b"GET /" + b"a" * 10**6 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, 431, 400, None),
    "a bad escape": raw_gives(b"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400, None),
    "a path upwards": raw_gives(
        b"GET /page/../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, 400, None),
    "another version": raw_gives(b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", 400, 505, None),
    "100 MB": a_hundred_megabytes,
    "100 MB in chunks": a_hundred_megabytes_in_chunks,
    "a header flood": a_header_flood,
    "a slow loris": a_slow_loris,
    "a half-closed socket": half_closed,
    "a port scan": a_port_scan,
    "TLS to a plain port": tls_to_a_plain_port,
    "disconnects at every stage": disconnects_at_every_stage,
    "pipelined requests": pipelined,
    "a flood behind a stream": a_flood_behind_a_stream,
    "a reader that does not read": a_reader_that_does_not_read,
    "long stop strings": stop_strings_of_every_kind,
    "Unicode of every kind": unicode_of_every_kind,
}


class BreakersTest(CliTest):
    def test_one_by_one(self):
        with serving() as server:
            for name, breaker in BREAKERS.items():
                with self.subTest(name):
                    breaker(server)
                    self.assertIsNone(server.process.poll(), server.log[-2000:])
            server.wait_until_idle()

    def test_all_at_once_beside_healthy_streams(self):
        with serving("--max-num-queued-requests", 100000) as server:
            healthy = HealthyStreams(server)
            breakers = list(BREAKERS.items()) * 2
            random.Random(1).shuffle(breakers)
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                futures = [(name, pool.submit(breaker, server)) for name, breaker in breakers]
                for name, future in futures:
                    with self.subTest(name):
                        future.result()
            healthy.end()
            self.assertGreater(healthy.finished, 6)
            server.wait_until_idle()
            metrics = server.metrics()
            self.assertEqual(metrics["quire:num_requests_running"], 0)


if __name__ == "__main__":
    unittest.main()
