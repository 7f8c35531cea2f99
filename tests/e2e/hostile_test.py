"""Thousands of hostile clients, made up by Hypothesis, beside six healthy streams.

After each crowd the server lives and is healthy; every answer could be read; the streams have the tokens that they have
without hostile clients; in the end the server has the memory that it had. A failure is shrunk to the fewest and simplest
clients that still show it.

QUIRE_HOSTILE_CASES sets how many clients there are (2000; with sanitizers, which keep what was freed, a tenth, and
memory is not looked at). Seeds are fixed: every run has the same clients.
"""

import concurrent.futures
import itertools
import os
import pathlib
import random
import sys
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from python_packages import use_test_packages  # noqa: E402

use_test_packages()

import hypothesis  # noqa: E402: a package of the tests

from healthy_streams import HealthyStreams  # noqa: E402
from hostile_cases import MOST_AT_ONCE, crowds, weighted_endpoints  # noqa: E402
from hostile_client import HostileClient  # noqa: E402
from server_support import Server  # noqa: E402
from support import CliTest  # noqa: E402

SANITIZED = bool(os.environ.get("QUIRE_SANITIZE"))
CASES = int(os.environ.get("QUIRE_HOSTILE_CASES", 200 if SANITIZED else 2000))
SETTINGS = hypothesis.settings(
    max_examples=25, database=None, deadline=None, report_multiple_bugs=False,
    phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    suppress_health_check=list(hypothesis.HealthCheck))

MAX_BODY_BYTES = 2 << 20
LARGEST = 1 << 20  # about as large a body is, so that twice that can be too large
KV_BLOCKS = 256
# What the log of finished requests keeps is not what is looked for: it is full after the warm-up.
ARGUMENTS = ("--no-access-log", "--max-model-len", 256, "--num-gpu-blocks-override", KV_BLOCKS,
             "--max-body-bytes", MAX_BODY_BYTES, "--max-finished-requests", 32)
LIMITS = ("--max-server-memory", 8 << 20, "--max-response-bytes", 64 << 10)  # some of the cases alone take more
MAX_GROWTH = 1.1  # of memory, from after the warm-up to after the last client
GIVES_BACK_S = 1  # several times what the server waits before it gives free memory back to the system
WORDS_OF_A_TEXT = 5000  # a few of these texts reach all pages of a cache of words


class Target:
    """A server with healthy streams. `memory_kib`: what it has in use after its warm-up."""

    def __init__(self, limits=()):
        self.server = Server(*ARGUMENTS, *limits)
        if not SANITIZED:  # where memory is not compared
            self.warm_up()
        self.memory_kib = self.server.memory_kib()
        self.healthy = HealthyStreams(self.server, may_refuse={429} if limits else ())
        self.client = HostileClient(self.server)

    def warm_up(self):
        """Fills the KV cache, the tokenizer's caches of words and a constraint's caches: what was never written does
        not count as in use.
        """
        draws = random.Random(1)
        for _ in range(2 * KV_BLOCKS * 16 // 200):
            prompt = [draws.randrange(8000) for _ in range(200)]
            self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
        self.fill_a_step()
        for seed in range(8):
            self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 100, "temperature": 2, "seed": seed,
                                                 "response_format": {"type": "json_object"}})
        texts = [" ".join("%x" % draws.randrange(2**32) for _ in range(WORDS_OF_A_TEXT)) for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            # Each of those that encode at once has a cache of its own.
            bodies = [{"prompt": text} for text in texts for _ in range(MOST_AT_ONCE)]
            list(pool.map(lambda body: self.server.post("/tokenize", body), bodies))

    def fill_a_step(self):
        """As many sequences at once as the crowds can make, with all that a step computes for them: its buffers grow
        with the largest step, and stay.
        """
        body = {"prompt": [[5 + i] * 30 for i in range(4)], "n": 4, "max_tokens": 24, "ignore_eos": True,
                "temperature": 1, "top_k": 50, "logprobs": 20, "prompt_logprobs": 20, "repetition_penalty": 2}
        with concurrent.futures.ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            list(pool.map(lambda _: self.server.post("/v1/completions", body), range(2 * MOST_AT_ONCE)))

    def face(self, crowd):
        """Raises what went wrong with a client of the crowd or with the server."""
        self.client.run_all(crowd)
        code = self.server.process.poll()
        if code is not None:
            raise AssertionError(f"the server ended with {code}: {self.server.log[-2000:]}")
        status, _, body = self.server.get("/health")
        if status != 200:
            raise AssertionError(f"/health: {status} {body}")

    def end(self):
        """The memory in use when all is over, in KiB; raises what went wrong with a stream."""
        self.healthy.end()
        self.server.wait_until_idle()
        time.sleep(GIVES_BACK_S)
        memory = self.server.memory_kib()
        code = self.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}: {self.server.log[-2000:]}")
        return memory

    def kill(self):
        self.server.kill()
        self.healthy.stop.set()


class HostileTest(CliTest):
    def attack(self, count, limits=()):
        """At least `count` clients, in crowds, against a server with these limits; the target that they left."""
        target = Target(limits)
        self.addCleanup(lambda: target.kill())  # of the last one
        endpoints = weighted_endpoints(target.server.get("/openapi.json")[2])
        seen = 0

        def face(crowd):
            nonlocal target, seen
            try:
                target.face(crowd)
            except AssertionError:
                if target.server.process.poll() is not None:  # what the crowd is shrunk to needs one that lives
                    target.kill()
                    target = Target(limits)
                raise
            seen += len(crowd)

        for seed in itertools.count():
            if seen >= count:
                break
            hypothesis.seed(seed)(SETTINGS(hypothesis.given(crowds(endpoints, LARGEST))(face)))()
        print(f"hostile: {seen} clients, {target.healthy.finished} healthy streams; answers by status: "
              f"{dict(sorted(target.client.statuses.items()))}", file=sys.stderr)
        return target

    def test_beside_healthy_streams(self):
        target = self.attack(CASES)
        before, after = target.memory_kib, target.end()
        self.assertGreater(target.healthy.finished, len(target.healthy.words))
        print(f"memory: {before} KiB before, {after} KiB after", file=sys.stderr)
        if not SANITIZED:
            self.assertLessEqual(after, MAX_GROWTH * before)

    def test_where_memory_is_short(self):
        target = self.attack(CASES // 8, LIMITS)
        target.end()
        self.assertGreater(target.healthy.finished, len(target.healthy.words))
        self.assertTrue({413, 429} & set(target.client.statuses), "no limit was met")


if __name__ == "__main__":
    unittest.main()
