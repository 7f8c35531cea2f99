"""What the README shows is what the commands print, and what scripts/demo.sh asks."""

import re
import shlex
import unittest

from support import SOURCE_DIR, CliTest, run

README = (SOURCE_DIR / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^    > (.+)\n    (.+)$", README, re.MULTILINE)
COMMANDS = re.findall(r"^    \$ quire (.+)\n    (.+)$", README, re.MULTILINE)


class Readme(CliTest):
    def test_questions(self):
        self.assertGreaterEqual(len(EXAMPLES), 5)
        for question, answer in EXAMPLES:
            result = run("generate", "--chat", "--temperature", "0", "-p", question)
            self.assert_ok(result)
            self.assertEqual(result.stdout, answer + "\n")

    def test_commands(self):
        self.assertGreaterEqual(len(COMMANDS), 1)
        for command, output in COMMANDS:
            result = run(*shlex.split(command))
            self.assert_ok(result)
            self.assertEqual(result.stdout, output + "\n")

    def test_the_demo_asks_the_same(self):
        demo = (SOURCE_DIR / "scripts" / "demo.sh").read_text(encoding="utf-8")
        (block,) = re.findall(r"questions=\(\n(.*?)\n\)", demo, re.DOTALL)
        self.assertEqual(shlex.split(block), [question for question, _ in EXAMPLES])


if __name__ == "__main__":
    unittest.main()
