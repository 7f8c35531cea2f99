"""Every option of `quire serve` that the page of operations and deploy/ name is one that it has."""

import os
import re
import subprocess
import unittest

import support

if "QUIRE_BINARY" not in os.environ:
    support.skip("there is no quire to ask for its options")

OPTION = re.compile(r"--[a-z][a-z-]+")
# Lines of a page or a file on which options are quire's: commands, entry points and arguments.
COMMAND = re.compile(r"(?m)^.*(?:quire serve|\"quire\", \"serve\"|QUIRE_OPTIONS=).*$")


def known_options():
    result = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--help"], capture_output=True,
                            encoding="utf-8", check=True)
    return set(OPTION.findall(result.stdout))


def options_of_commands(text):
    joined = re.sub(r"\\\n#?\s*", " ", text)
    return {option for line in COMMAND.findall(joined) for option in OPTION.findall(line)}


class Options(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_options()

    def assert_known(self, options, where):
        self.assertTrue(options, f"{where} names no options")
        self.assertEqual(options - self.known, set(), where)

    def test_operations(self):
        text = (support.SOURCE_DIR / "docs" / "operations.md").read_text(encoding="utf-8")
        quoted = set(re.findall(r"`(--[a-z][a-z-]+)[^`]*`", text))
        self.assert_known(quoted | options_of_commands(text), "docs/operations.md")

    def test_unit_and_image(self):
        for name in ("quire.service", "Dockerfile"):
            text = (support.DEPLOY / name).read_text(encoding="utf-8")
            self.assert_known(options_of_commands(text), name)

    def test_manifests(self):
        for name in ("kubernetes.yaml", "leaderworkerset.yaml", "leaderworkerset-gpu.yaml"):
            text = (support.DEPLOY / name).read_text(encoding="utf-8")
            self.assert_known(set(re.findall(r"(?m)^\s+- (--[a-z-]+)=", text)), name)

    def test_the_default_that_supervisors_rely_on(self):
        result = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--help"], capture_output=True,
                                encoding="utf-8", check=True)
        about = result.stdout.split("--shutdown-timeout", 1)[1].split("--", 1)[0]
        self.assertIn(f"[{support.DEFAULT_SHUTDOWN_TIMEOUT_S}]", about)


if __name__ == "__main__":
    unittest.main()
