"""quire chat, with lines from elsewhere and on a terminal."""

import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from support import BINARY, CliTest, model_copy, run

GREEDY = ["--temperature", "0"]


CHAT = [BINARY, "chat", *GREEDY]


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, state_home, command):
        self.leader, follower = pty.openpty()
        self.modes = termios.tcgetattr(follower)
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
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

    def resize(self, columns):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

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

    def test_no_stats_of_an_answer_that_was_not_given(self):
        result = run("chat", *GREEDY, stdin="/stats\ndefine apple\n/reset\n/stats\n")
        self.assert_ok(result)
        self.assertEqual(result.stdout.count("last answer: there is none yet"), 2)

    def test_a_full_conversation_points_to_reset(self):
        talk = "define apple\n" * 8
        result = run("chat", *GREEDY, "--max-model-len", "64", stdin=talk + "/reset\ndefine apple\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("the conversation is full", result.stderr.splitlines()[0])
        self.assertIn("/reset", result.stderr.splitlines()[0])
        self.assertIn("fruit", result.stdout.splitlines()[-1])

    def test_help_lists_no_option_that_is_refused(self):
        text = run("chat", "--help").stdout
        for option, value in (("--n", ["2"]), ("--logprobs", ["1"]), ("--prompt-logprobs", ["1"]),
                              ("--skip-tokenizer-init", [])):
            self.assertNotRegex(text, option + r"\b")
            self.assert_error(run("chat", option, *value), 2, option + ": a chat")

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
        terminal = self.open_command([*CHAT, *arguments])
        terminal.wait_for("> ")
        return terminal

    def open_command(self, command):
        terminal = Terminal(self.state_home.name, command)
        self.addCleanup(terminal.close)
        return terminal

    def assert_ends(self, terminal, code=0):
        self.assertEqual(terminal.process.wait(120), code)
        self.assertEqual(termios.tcgetattr(terminal.leader), terminal.modes)

    def test_history_and_end(self):
        terminal = self.open()
        terminal.type("define apple\r")
        terminal.wait_for("fruit")
        terminal.wait_for("> ")
        terminal.type("\x1b[A\r")
        terminal.wait_for("define apple")
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assert_ends(terminal)
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
        self.assert_ends(terminal)

    def test_what_is_typed_during_an_answer_is_kept(self):
        terminal = self.open("--ignore-eos", "--max-tokens", "300")
        terminal.type("define apple\r")
        terminal.wait_for("fruit")
        # Ctrl-A and Ctrl-D take the x away: a Ctrl-D that came as typed. The last one ends the chat.
        terminal.type("xdefine pear\x01\x04\r/stats\r\x04")
        self.assertNotIn("pear", terminal.wait_for("> "))
        terminal.wait_for("fruit")
        terminal.wait_for("300 output tokens")
        self.assert_ends(terminal)

    def test_the_terminal_is_given_back_however_it_ends(self):
        stopped_twice = self.open("--ignore-eos")
        stopped_twice.type("define apple\r")
        stopped_twice.wait_for("fruit")
        os.kill(stopped_twice.process.pid, signal.SIGSTOP)
        stopped_twice.type("\x03")
        os.kill(stopped_twice.process.pid, signal.SIGCONT)
        stopped_twice.wait_for("(stopped)")
        stopped_twice.wait_for("> ")
        for end in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=end):
                terminal = self.open()
                os.kill(terminal.process.pid, end)
                self.assert_ends(terminal, -end)

    def test_a_resized_window_shows_the_line_once(self):
        terminal = self.open()
        terminal.resize(80)
        terminal.wait_for("> ")
        terminal.type("tell me all that you know about the word apple")
        terminal.wait_for("word apple")
        # Twenty columns take the prompt and these 46 characters in three rows: up two, then anew.
        terminal.resize(20)
        terminal.wait_for("\x1b[2A\r\x1b[J> tell me")
        terminal.type("\x15define apple\r")
        terminal.wait_for("fruit")
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assert_ends(terminal)

    def test_stopped_and_continued_by_a_shell(self):
        shell = self.open_command(["bash", "--norc", "--noprofile", "-i"])
        shell.type("PS1='$'' '; " + " ".join(CHAT) + "\r")
        shell.wait_for("lists the commands")
        shell.wait_for("> ")
        shell.type("define ap")
        shell.wait_for("define ap")
        shell.type("\x1a")
        shell.wait_for("Stopped")
        shell.wait_for("$ ")
        shell.type("fg\r")
        shell.wait_for("> define ap")
        shell.type("ple\r")
        shell.wait_for("fruit")
        shell.wait_for("> ")
        shell.type("\x04")
        shell.wait_for("$ ")
        shell.type("exit\r")
        self.assertEqual(shell.process.wait(120), 0)

    def test_unicode_is_typed_as_it_is(self):
        terminal = self.open("--max-tokens", "4")
        terminal.type("na\u00efve \u4e16\u754c\r")
        terminal.wait_for("na\u00efve \u4e16\u754c")
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assert_ends(terminal)


if __name__ == "__main__":
    unittest.main()
