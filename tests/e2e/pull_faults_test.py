"""quire pull, against a hub that breaks off, lies or stalls, and when it is interrupted itself."""

import hashlib
import os
import random
import signal
import subprocess
import threading
import unittest

from pull_support import CONFIG, WEIGHTS, PullTest
from support import BINARY, TIMEOUT_S, run


class Faulty(PullTest):
    def test_cut_connections(self):
        numbers = random.Random(2)
        self.hub.faults.cuts = {
            "model.safetensors": [numbers.randrange(1, len(WEIGHTS) // 8) for _ in range(6)],
            "config.json": [numbers.randrange(1, len(CONFIG) - 1)],
        }
        result = self.pull()
        self.assert_pulled(result)
        self.assertIn("the connection broke", result.stderr)
        ranges = [request.headers.get("Range") for request in self.hub.requests if request.server == "storage"]
        self.assertEqual(len(ranges), 7)
        begins = [int(text.removeprefix("bytes=").removesuffix("-")) for text in ranges[1:]]
        self.assertEqual(begins, sorted(begins))
        self.assertGreater(begins[0], 0)

    def test_a_server_without_ranges(self):
        self.hub.faults.no_range = True
        self.hub.faults.cuts = {"model.safetensors": [100_000, 200_000]}
        self.assert_pulled(self.pull())

    def test_troubles_that_pass(self):
        self.hub.faults.answers = {"/api/": [(500, {}), (429, {"Retry-After": "1"})],
                                   "resolve": [(503, {}), (429, {"RateLimit": '"api";r=0;t=1'})],
                                   "storage": [(403, {}), (502, {})]}
        result = self.pull()
        self.assert_pulled(result)
        self.assertIn("HTTP 429; trying again in 1 s", result.stderr)

    def test_troubles_that_last(self):
        self.hub.faults.answers = {"/api/": [(503, {})] * 20}
        result = self.pull()
        self.assertEqual(result.returncode, 1)
        self.assertIn("HTTP 503, 6 times in a row", result.stderr)

    def test_a_wait_that_is_too_long(self):
        self.hub.faults.answers = {"/api/": [(429, {"Retry-After": "86400"})]}
        self.assert_error(self.pull(), 1, "asks to wait for 86400 s")

    def test_a_wrong_content_once(self):
        wrong = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
        self.hub.faults.contents = {"model.safetensors": [wrong], "config.json": [CONFIG.upper()]}
        result = self.pull()
        self.assert_pulled(result)
        self.assertIn("downloading it anew", result.stderr)

    def test_a_wrong_content_twice(self):
        wrong = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
        self.hub.faults.contents = {"model.safetensors": [wrong, wrong]}
        result = self.pull()
        self.assertEqual(result.returncode, 1)
        self.assertIn(hashlib.sha256(wrong).hexdigest(), result.stderr.splitlines()[-1])
        self.assertIn(hashlib.sha256(WEIGHTS).hexdigest(), result.stderr.splitlines()[-1])
        self.assertFalse((self.folder / "blobs" / f"{self.hub.etag('model.safetensors')}.incomplete").exists())
        self.assert_nothing_linked()
        self.assert_pulled(self.pull())

    def test_lying_sizes(self):
        for wrong in (WEIGHTS + b"x", WEIGHTS[:-1], b""):
            self.hub.faults.contents = {"model.safetensors": [wrong, wrong]}
            result = self.pull()
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"it has {len(wrong)} bytes where the hub's list says {len(WEIGHTS)}", result.stderr)
            self.assert_no_lies()
        self.assert_pulled(self.pull())

    def test_what_was_left_is_no_part_of_the_file(self):
        blobs = self.folder / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{self.hub.etag('model.safetensors')}.incomplete").write_bytes(b"x" * 1000)
        (blobs / f"{self.hub.etag('config.json')}.incomplete").write_bytes(b"x" * 1000)
        result = self.pull()
        self.assert_pulled(result)
        self.assertIn("model.safetensors: its SHA-256 is", result.stderr)


class Interrupted(PullTest):
    HELD = 150_000

    def setUp(self):
        super().setUp()
        self.event = threading.Event()
        self.addCleanup(self.event.set)
        self.hub.faults.hold = {"model.safetensors": (self.HELD, self.event)}
        self.incomplete = self.folder / "blobs" / f"{self.hub.etag('model.safetensors')}.incomplete"

    def wait_until_held(self, process):
        """Until all that the server gives has come."""
        done = lambda: self.incomplete.exists() and self.incomplete.stat().st_size == self.HELD
        for _ in range(TIMEOUT_S * 50):
            if done():
                return
            self.assertIsNone(process.poll(), "it ended too early")
            threading.Event().wait(0.02)
        self.fail("nothing came")

    def assert_goes_on(self):
        self.event.set()
        self.hub.requests.clear()
        self.assert_pulled(self.pull())
        (storage,) = [request for request in self.hub.requests if request.server == "storage"]
        self.assertEqual(storage.headers["Range"], f"bytes={self.HELD}-")

    def test_ctrl_c(self):
        process = self.start()
        self.wait_until_held(process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("goes on where it stopped", stderr)
        self.assert_nothing_linked()
        self.assert_goes_on()

    def test_kill(self):
        process = self.start()
        self.wait_until_held(process)
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        self.assert_nothing_linked()
        missing = run("generate", "org/name", "-p", "x", env=self.environment())
        self.assert_error(missing, 1, "quire pull org/name")
        self.assert_goes_on()

    def test_killed_at_any_moment(self):
        self.event.set()
        self.hub.faults.chunk = (30_000, 0.002)
        numbers = random.Random(3)
        for _ in range(15):
            process = self.start()
            threading.Event().wait(numbers.random() * 0.08)
            process.kill()
            process.communicate(timeout=TIMEOUT_S)
            self.assert_no_lies()
        self.hub.faults.chunk = None
        self.assert_pulled(self.pull())

    def test_a_silent_connection_is_cut(self):
        self.addCleanup(self.event.set)
        self.hub.faults.hold = {"model.safetensors": (self.HELD, self.event)}
        process = subprocess.Popen([BINARY, "pull", "org/name"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   encoding="utf-8", env=os.environ | self.environment(HF_HUB_DOWNLOAD_TIMEOUT="2"))
        for line in process.stderr:
            if "the connection broke" in line:
                break
        self.hub.faults.hold = {}
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0)
        self.assert_cache()


if __name__ == "__main__":
    unittest.main()
