"""quire chat, with lines from elsewhere and on a terminal."""

import os
import pathlib
import pty
import select
import signal
import subprocess
import tempfile
import time
import unittest

from support import BINARY, CliTest, model_copy, run

GREEDY = ["--temperature", "0"]


class Terminal:
    """quire chat on a pseudo-terminal."""

    def __init__(self, state_home, *arguments):
        self.leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [BINARY, "chat", *GREEDY, *arguments], stdin=follower, stdout=follower, stderr=follower,
            start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(state_home), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"})
        os.close(follower)
        self.seen = ""

    def wait_for(self, text, timeout=120):
        """Reads until `text` shows up after what was waited for before."""
        deadline = time.monotonic() + timeout
        while text not in self.seen:
            ready, _, _ = select.select([self.leader], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{text!r} did not come; the terminal shows {self.seen!r}")
            try:
                piece = os.read(self.leader, 4096)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"{text!r} did not come before the end: {self.seen!r}")
            self.seen += piece.decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.leader, text.encode())

    def close(self):
        os.close(self.leader)
        self.process.kill()
        self.process.wait()


class ChatLines(CliTest):
    def test_each_line_is_a_message(self):
        result = run("chat", *GREEDY, stdin="define apple\nuse it in a sentence\n")
        self.assert_ok(result)
        answers = result.stdout.splitlines()
        self.assertEqual(len(answers), 2)
        self.assertIn("fruit", answers[0])
        self.assertIn("apple", answers[1])

    def test_commands(self):
        result = run("chat", *GREEDY, stdin="/help\n/system Be brief.\ndefine apple\n/stats\n/retry\n/reset\n/exit\nnot read\n")
        self.assert_ok(result)
        self.assertIn("/retry", result.stdout)
        self.assertIn("output tokens", result.stdout)
        self.assertEqual(result.stdout.count("fruit"), 2)

    def test_multi_line_messages(self):
        joined = run("chat", *GREEDY, stdin='define \\\napple\n')
        fenced = run("chat", *GREEDY, stdin='"""\ndefine \napple\n"""\n')
        self.assert_ok(joined)
        self.assertEqual(joined.stdout, fenced.stdout)

    def test_errors_do_not_end_it(self):
        result = run("chat", *GREEDY, stdin="/rset\n" + "long " * 5000 + "\ndefine apple\n")
        self.assertEqual(result.returncode, 1)
        errors = result.stderr.splitlines()
        self.assertEqual(len(errors), 2, result.stderr)
        self.assertIn("did you mean /reset?", errors[0])
        self.assertIn("max_model_len", errors[1])
        self.assertIn("fruit", result.stdout)

    def test_needs_a_chat_template(self):
        with model_copy(without=("chat_template.jinja",), tokenizer_config__json="{}") as folder:
            self.assert_error(run("chat", folder, stdin="hi"), 1, "chat template")


class ChatTerminal(CliTest):
    def setUp(self):
        self.state_home = tempfile.TemporaryDirectory()
        self.addCleanup(self.state_home.cleanup)

    def open(self, *arguments):
        terminal = Terminal(self.state_home.name, *arguments)
        self.addCleanup(terminal.close)
        terminal.wait_for("> ")
        return terminal

    def test_history_and_end(self):
        terminal = self.open()
        terminal.type("define apple\r")
        terminal.wait_for("fruit")
        terminal.wait_for("> ")
        terminal.type("\x1b[A\r")
        terminal.wait_for("define apple")
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assertEqual(terminal.process.wait(30), 0)
        history = pathlib.Path(self.state_home.name) / "quire" / "history"
        self.assertIn("define", history.read_text())
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        terminal = self.open("--ignore-eos")
        terminal.type("define apple\r")
        terminal.wait_for("fruit")
        terminal.type("\x03")
        terminal.wait_for("(stopped)")
        terminal.wait_for("> ")
        terminal.type("half a line\x03")
        terminal.wait_for("^C")
        terminal.wait_for("> ")
        terminal.type("/stats\r")
        terminal.wait_for("output tokens")
        terminal.wait_for("> ")
        terminal.type("/exit\r")
        self.assertEqual(terminal.process.wait(30), 0)

    def test_unicode_is_typed_as_it_is(self):
        terminal = self.open("--max-tokens", "4")
        terminal.type("na\u00efve \u4e16\u754c\r")
        terminal.wait_for("na\u00efve \u4e16\u754c")
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assertEqual(terminal.process.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
