"""What the README shows is what the commands print, and what scripts/demo.sh asks; pages' tables and links are right."""

import re
import shlex
import subprocess
import sys
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

    def test_the_commands_are_on_the_first_screen(self):
        first = README.splitlines()[:40]
        for line in ("## Two commands", "![", "| Qwen3-0.6B, one stream |", "    scripts/demo.sh ", "    scripts/test.sh "):
            self.assertTrue(any(text.startswith(line) for text in first), line)


class Pages(unittest.TestCase):
    def test_tables_are_what_the_figures_give(self):
        script = SOURCE_DIR / "scripts" / "plot_performance.py"
        result = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True, encoding="utf-8",
                                check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_links_lead_somewhere(self):
        for page in (SOURCE_DIR / "README.md", SOURCE_DIR / "CONTRIBUTING.md", *(SOURCE_DIR / "docs").rglob("*.md")):
            text = re.sub(r"^    .*$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # no code
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


if __name__ == "__main__":
    unittest.main()
