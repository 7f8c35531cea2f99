"""A thousand streams at once, on the bundled model: no error, no leak, every stream correct.

QUIRE_SOAK_SECONDS says how long (60; sanitized builds 10 with 100 streams, where memory is not looked at: a sanitizer
keeps what was freed), and once more as long as too few answers have come.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from server_support import serving
from support import BINARY, CliTest

SANITIZED = bool(os.environ.get("QUIRE_SANITIZE"))
SECONDS = int(os.environ.get("QUIRE_SOAK_SECONDS", 10 if SANITIZED else 60))
STREAMS = 100 if SANITIZED else 1000
WORDS = ("apple pear run happy candid tree river house book music light water stone paper green swift gentle brave "
         "quiet ocean").split()
WORDINGS = ["define {}", "what does {} mean?", "use {} in a sentence"]
# The first answers warm up: by then all of a small KV cache has been touched, and counts as memory in use. What may be
# added after them: allocators settle slowly, leaks grow without end.
WARM_UP_ANSWERS = 1500
KV_CACHE = "100M"
SLACK = 1.05
MIN_ANSWERS = 2 * (STREAMS if SANITIZED else WARM_UP_ANSWERS)


class SoakTest(CliTest):
    def round(self, server, prompts, memory):
        """Load for SECONDS; what bench serve says of it. Adds pairs of answers so far and KiB in use to memory."""
        client = subprocess.Popen(
            [BINARY, "bench", "serve", "--base-url", server.address, "--dataset", prompts, "--temperature", "0",
             "--expect-identical", "--max-concurrency", str(STREAMS), "--duration", str(SECONDS), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.kill)
        while client.poll() is None:
            memory.append((server.metrics().get("quire:request_success_total", 0), server.memory_kib()))
            time.sleep(0.5)
        out, err = client.communicate()
        self.assertEqual(client.returncode, 0, out + err)
        return json.loads(out)

    def test_a_thousand_streams(self):
        with tempfile.TemporaryDirectory() as folder, serving("--no-access-log", "--kv-cache-memory-bytes",
                                                              KV_CACHE) as server:
            prompts = pathlib.Path(folder, "prompts.jsonl")
            prompts.write_text("".join(
                json.dumps({"messages": [{"role": "user", "content": wording.format(word)}], "max_tokens": 64}) + "\n"
                for word in WORDS for wording in WORDINGS))
            memory = []
            answers = 0
            while answers < MIN_ANSWERS:
                result = self.round(server, prompts, memory)
                self.assertEqual(result["failed"], 0, result)
                answers += result["completed"]
            server.wait_until_idle()
            if not SANITIZED:
                warm = max(kib for answers_by_then, kib in memory if answers_by_then < WARM_UP_ANSWERS)
                most = max(kib for _, kib in memory)
                self.assertGreater(memory[-1][0], WARM_UP_ANSWERS, "too few answers to tell a leak")
                self.assertLessEqual(most, warm * SLACK, f"memory grew after the warm-up: {memory}")
            print(f"soak: {STREAMS} streams, {answers} answers, "
                  f"at most {max(kib for _, kib in memory) // 1024} MiB")


if __name__ == "__main__":
    unittest.main()
