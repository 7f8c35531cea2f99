"""The server against its own description: schemathesis asks what /openapi.json allows, and what it does not.

QUIRE_SCHEMATHESIS_EXAMPLES sets how many requests it makes up for each operation, 100 by default.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from python_packages import VENV, use_test_packages  # noqa: E402

use_test_packages()

from server_support import serving  # noqa: E402
from support import SOURCE_DIR, CliTest  # noqa: E402

EXAMPLES = os.environ.get("QUIRE_SCHEMATHESIS_EXAMPLES", "100")
KEY = "the-key-of-the-tests"
HERE = pathlib.Path(__file__).parent


class SchemathesisTest(CliTest):
    def test_in_positive_and_negative_mode(self):
        # Short outputs: valid requests ask for up to 128 of them, as long as the model takes.
        with serving("--api-key", KEY, "--max-model-len", 128, "--no-access-log") as server:
            server.headers["Authorization"] = f"Bearer {KEY}"
            for mode in ["positive", "negative"]:
                with self.subTest(mode):
                    self.check(server, mode)
            server.wait_until_idle()
            self.assertEqual(self.failed_requests(server), [])

    def test_adapters(self):
        with serving("--api-key", KEY, "--no-access-log", "--enable-lora", "--allow-runtime-lora", "--lora-dir",
                     SOURCE_DIR / "tests" / "golden" / "lora") as server:
            server.headers["Authorization"] = f"Bearer {KEY}"
            for mode in ["positive", "negative"]:
                with self.subTest(mode):
                    self.check(server, mode, "--include-path-regex", "lora_adapter")
            self.assertEqual(self.failed_requests(server), [])

    def check(self, server, mode, *only):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [VENV / "bin" / "schemathesis", "run", f"{server.address}/openapi.json", "--mode", mode,
                 "--header", f"Authorization: Bearer {KEY}", "--checks", "all", "--max-examples", EXAMPLES,
                 "--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--continue-on-failure",
                 "--request-timeout", "120", "--max-response-time", "120", "--warnings", "off", "--no-color",
                 "--output-truncate", "false", *only],
                cwd=folder, capture_output=True, text=True, check=False,
                env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE),
                     "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(result.returncode, 0, f"{result.stdout[-30000:]}\n{result.stderr}\n{server.log[-3000:]}")
        tested = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", result.stdout)
        selected, of_all, done = map(int, tested.groups())
        self.assertEqual((selected, done), (2, 2) if only else (of_all, of_all), result.stdout)
        print(f"{mode}:", re.search(r"[\d,]+ generated.*", result.stdout)[0], file=sys.stderr)

    @staticmethod
    def failed_requests(server):
        lines = server.get("/metrics")[2].decode().splitlines()
        return [line for line in lines if re.match(r"quire:http_requests_total\{.*status=\"5", line)]


if __name__ == "__main__":
    unittest.main()
