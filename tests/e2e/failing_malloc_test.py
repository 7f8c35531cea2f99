"""Allocations of the whole process fail, one at a time, while it answers each path: it lives, and answers the next request.

About QUIRE_FAILING_MALLOC_TRIES (40) allocations of each request fail, which ones differs from run to run; 0: every one
(20,000 in all, some minutes). tests/low_memory looks closer at what becomes of a request, in a server without an engine.
"""

import http.client
import json
import mmap
import os
import random
import re
import struct
import sys
import tempfile
import unittest

from server_support import Server
from support import CliTest

LIBRARY = os.environ.get("QUIRE_FAILING_MALLOC", "")
TRIES = int(os.environ.get("QUIRE_FAILING_MALLOC_TRIES", 40))
NEVER = -1
UNREACHED = 1 << 40
TIMEOUT_S = 60

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = {"messages": [{"role": "user", "content": "define apple"}]}
SHORT = {"max_tokens": 6, "temperature": 0}
UNIQUE = "UNIQUE"  # another text in each request: its constraint has to be compiled
DIGIT = {"title": UNIQUE, "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"],
         "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": DIGIT}}
CASES = {
    "chat": (CHAT, {**MESSAGES, **SHORT, "logprobs": True, "top_logprobs": 2}),
    "chat stream": (CHAT, {**MESSAGES, **SHORT, "stream": True}),
    "completion": (COMPLETIONS, {"prompt": ["define apple", "define run"], "n": 2, "logprobs": 2, "prompt_logprobs": 2,
                                 "echo": True, **SHORT}),
    "resumable stream": (COMPLETIONS, {"prompt": "define apple", "stream": True, "stream_options": {"resumable": True},
                                       **SHORT}),
    "schema": (CHAT, {**MESSAGES, **SHORT, "max_tokens": 40, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": DIGIT}}}),
    "forced call": (CHAT, {**MESSAGES, **SHORT, "max_tokens": 60, "tools": [TOOL], "tool_choice": "required"}),
    "tokenize": ("/tokenize", {"prompt": "define apple", "return_token_strs": True}),
    "tokenize chat": ("/tokenize", MESSAGES),
    "detokenize": ("/detokenize", {"tokens": [5, 6, 7]}),
    "load adapter": ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/nowhere"}),
    "unload adapter": ("/v1/unload_lora_adapter", {"lora_name": "x"}),
    **{path: (path, None) for path in ["/", "/v1/models", "/v1/models/lexicon", "/v1/requests/none", "/metrics", "/health",
                                       "/v1/requests/none/events", "/ready", "/version", "/openapi.json", "/nowhere"]},
}


class FailingMalloc:
    def __init__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(struct.pack("qq", NEVER, 0))
        self.file.flush()
        self.numbers = mmap.mmap(self.file.fileno(), 16)

    def env(self):
        return {"LD_PRELOAD": LIBRARY, "QUIRE_FAILING_MALLOC_FILE": self.file.name}

    def count_down(self, count):
        self.numbers[:] = struct.pack("qq", count, 0)

    def stop(self):
        """(what is left of the count, whether it failed)"""
        left, failed = struct.unpack("qq", self.numbers[:])
        self.count_down(NEVER)
        return left, failed > 0


@unittest.skipUnless(LIBRARY, "the library is not built with sanitizers, which have a malloc of their own")
class FailingMallocTest(CliTest):
    def ask(self, path, body):
        """(status, body); status 0 where the connection ended instead."""
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=TIMEOUT_S)
        try:
            if body is None:
                connection.request("GET", path)
            else:
                self.num_asked += 1
                text = json.dumps(body).replace(UNIQUE, str(self.num_asked))
                connection.request("POST", path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (http.client.HTTPException, ConnectionError):
            return 0, ""
        finally:
            connection.close()

    @staticmethod
    def comparable(path, answer):
        status, body = answer
        if body.startswith(("data: ", "id: ")):  # in how many pieces it comes is not the same each time
            body = "".join(re.findall(r'"(?:text|content)":"([^"]*)"', body))
        elif path == "/metrics":
            body = ""
        return status, re.sub(r'"created":\d+|(?:chatcmpl-|cmpl-|call_)\w+', "", body)

    def check(self, path, body):
        """How many allocations failed."""
        self.ask(path, body)
        expected = self.comparable(path, self.ask(path, body))
        self.malloc.count_down(UNREACHED)
        self.ask(path, body)
        total = UNREACHED - self.malloc.stop()[0]
        step = max(1, total // TRIES) if TRIES > 0 else 1
        index, tried = random.randrange(step), 0
        while True:
            self.malloc.count_down(index)
            status, _ = self.ask(path, body)
            _, failed = self.malloc.stop()
            what = f"{path}, allocation {index}"
            self.assertIsNone(self.server.process.poll(), f"{what}: {self.server.log[-2000:]}")
            self.assertIn(status, {0, expected[0], 500, 503}, what)
            self.assertEqual(self.ask("/health", None)[0], 200, what)
            if not failed:
                break
            tried += 1
            index += step
        self.assertEqual(self.comparable(path, self.ask(path, body)), expected, path)
        return tried

    def test_each_path(self):
        self.malloc, self.num_asked = FailingMalloc(), 0
        self.server = Server(
            "--no-access-log", "--tool-call-parser", "hermes", "--enable-lora", "--allow-runtime-lora",
            "--num-gpu-blocks-override", 256, "--otlp-traces-endpoint", "http://127.0.0.1:1", env=self.malloc.env())
        self.addCleanup(self.server.kill)
        for documented in json.loads(self.ask("/openapi.json", None)[1])["paths"]:
            pattern = re.sub(r"\{\w+\}", "[^/]+", documented)
            self.assertTrue(any(re.fullmatch(pattern, path) for path, _ in CASES.values()), f"{documented} needs a case")
        for name, (path, body) in CASES.items():
            with self.subTest(name):
                tried = self.check(path, body)
                print(f"failing malloc: {name}: {tried}", file=sys.stderr)
        self.server.wait_until_idle()
        self.assertEqual(self.server.stop(), 0, self.server.log[-2000:])


if __name__ == "__main__":
    unittest.main()
