"""Streams that are resumed: a client whose connection breaks goes on to the byte, and only it."""

import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import struct
import tempfile
import unittest

from server_support import serving
from support import CliTest

FIELDS = {"prompt": "define apple", "max_tokens": 60, "ignore_eos": True, "temperature": 0, "stream": True}


class Reader:
    """A stream as a browser's EventSource reads it: whole events, and the id of the last one."""

    def __init__(self, server, key):
        self.server = server
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.events = []
        self.last_id = None
        self.response = None

    def open(self, method, path, body=None, headers=None):
        self.connection = self.server.connect()
        self.connection.request(method, path, body, {**self.headers, **(headers or {})})
        self.socket = self.connection.sock  # which the connection gives to its answer
        self.response = self.connection.getresponse()
        if self.response.status != 200:
            self.close()
        return self.response.status

    def close(self):
        self.response.close()
        self.connection.close()

    def start(self, request_id, **fields):
        body = {**FIELDS, "stream_options": {"resumable": True, "include_usage": True}, **fields}
        return self.open("POST", "/v1/completions", json.dumps(body), {"X-Request-Id": request_id})

    def resume(self, request_id):
        headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
        return self.open("GET", f"/v1/requests/{request_id}/events", headers=headers)

    def read(self, at_most=None):
        """Events until the end (True), or so many; then the connection is broken off."""
        event = b""
        taken = 0
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            while at_most is None or taken < at_most:
                line = self.response.readline()
                if not line:
                    break
                event += line
                if line != b"\n":
                    continue
                self.events.append(event)
                self.last_id = re.match(rb"id: (\d+)\n", event)[1].decode()
                taken += 1
                if event.endswith(b"data: [DONE]\n\n"):
                    self.close()
                    return True
                event = b""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        self.socket.close()
        self.close()
        return False


class ResumeTest(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text("mine\nyours\n")
        cls.server = cls.stack.enter_context(serving("--api-key-file", folder / "keys"))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def whole(self, request_id):
        reader = Reader(self.server, "mine")
        self.assertEqual(reader.start(request_id), 200)
        self.assertTrue(reader.read())
        return reader.events

    def test_a_broken_stream_goes_on_to_the_byte(self):
        draw = random.Random(1)
        for trial in range(5):
            reader = Reader(self.server, "mine")
            self.assertEqual(reader.start(f"broken-{trial}"), 200)
            # A slow reader gets few events of many tokens: the first trial breaks after every event, each
            # other after its first, whatever their number.
            taken = 1
            breaks = 0
            while not reader.read(taken):
                breaks += 1
                self.assertEqual(reader.resume(f"broken-{trial}"), 200)
                taken = 1 if trial == 0 else draw.randint(1, 8)
            self.assertGreater(breaks, 0)
            if trial == 0:
                self.assertEqual(breaks, len(reader.events) - 1)
            # The server has kept all of it: asked from the first event on, it says the same.
            again = Reader(self.server, "mine")
            self.assertEqual(again.resume(f"broken-{trial}"), 200)
            self.assertTrue(again.read())
            self.assertEqual(b"".join(reader.events), b"".join(again.events))
            self.assertEqual([int(re.match(rb"id: (\d+)", event)[1]) for event in reader.events],
                             list(range(1, len(reader.events) + 1)))
            self.assertEqual(self.text_of(reader.events), self.text_of(self.whole(f"whole-{trial}")))
            facts = self.server.get(f"/v1/requests/broken-{trial}", headers={"Authorization": "Bearer mine"})[2]
            self.assertEqual((facts["finish_reason"], facts["usage"]["completion_tokens"]), ("length", 60))

    @staticmethod
    def text_of(events):
        parts = [json.loads(event.split(b"data: ", 1)[1]) for event in events[:-1]]
        return "".join(choice["text"] for part in parts for choice in part["choices"])

    def test_only_its_key_may(self):
        self.whole("mine-only")
        other = Reader(self.server, "yours")
        self.assertEqual(other.resume("mine-only"), 404)
        self.assertEqual(Reader(self.server, "nobody").resume("mine-only"), 401)
        self.assertEqual(Reader(self.server, "mine").resume("never"), 404)

    def test_wrong_ids(self):
        last = len(self.whole("ids"))
        for wrong in ("x", "-1", str(last + 1)):
            reader = Reader(self.server, "mine")
            reader.last_id = wrong
            self.assertEqual(reader.resume("ids"), 400, wrong)


if __name__ == "__main__":
    unittest.main()
