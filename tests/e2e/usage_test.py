"""Wrong usage, help, version, completions."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import CliTest, run

COMMANDS = [["generate"], ["chat"], ["tokenize"], ["bench"], ["bench", "throughput"], ["bench", "latency"],
            ["tune"], ["plan"], ["inspect"], ["check"], ["quantize"], ["merge"], ["perplexity"], ["pull"], ["completion"],
            ["grammar"], ["grammar", "check"]]


class Usage(CliTest):
    def test_version(self):
        result = run("--version")
        self.assert_ok(result)
        self.assertRegex(result.stdout, r"\Aquire \d+\.\d+\.\d+\n\Z")

    def test_help_of_every_command(self):
        for command in [[], *COMMANDS]:
            result = run(*command, "--help")
            self.assert_ok(result)
            self.assertIn("Usage: " + " ".join(["quire", *command]), result.stdout)
            if command not in ([], ["bench"], ["grammar"]):
                self.assertIn("Examples:", result.stdout, command)

    def test_help_names_the_engines_options(self):
        text = run("generate", "--help").stdout
        for option in """--max-num-batched-tokens --max-num-seqs --max-model-len --block-size
                --num-gpu-blocks-override --kv-cache-memory-bytes --gpu-memory-utilization
                --no-enable-prefix-caching --tensor-parallel-size --pipeline-parallel-size --pipeline-layers --enforce-eager --linear-algorithms --dtype --device --seed
                --load-format --skip-tokenizer-init --threads --temperature --top-p --top-k --min-p --max-tokens
                --min-tokens --ignore-eos --stop --stop-token-ids --n --logprobs --prompt-logprobs
                --logit-bias --repetition-penalty --presence-penalty --frequency-penalty
                --include-stop-str-in-output --no-skip-special-tokens --prompt --prompt-file --prompt-tokens
                --chat --json""".split():
            self.assertIn(option, text)

    def test_nothing_is_wrong_usage(self):
        result = run()
        self.assertEqual(result.returncode, 2)
        self.assertIn("generate", result.stderr)

    def test_wrong_usage(self):
        cases = [
            (["generat"], "there is no command generat; did you mean generate?"),
            (["generate", "--temprature", "1"], "there is no option --temprature; did you mean --temperature?"),
            (["generate", "-p"], "--prompt"),
            (["generate", "-p", "x", "a", "b"], "unexpected argument 'b'"),
            (["generate", "-p", "x", "--temperature", "hot"], "--temperature: expected a number, got 'hot'"),
            (["generate", "-p", "x", "--temperature", "-1"], "temperature"),
            (["generate", "-p", "x", "--top-p", "0"], "top_p"),
            (["generate", "-p", "x", "--n", "0"], "n"),
            (["generate", "-p", "x", "--max-tokens", "0"], "max_tokens"),
            (["generate", "-p", "x", "--logprobs", "21"], "logprobs"),
            (["generate", "-p", "x", "--logprobs", "2"], "--logprobs: only --json prints"),
            (["generate", "-p", "x", "--prompt-logprobs", "0"], "--prompt-logprobs: only --json prints"),
            (["generate", "-p", "x", "--stop", ""], "stop"),
            (["generate", "-p", "x", "--n", "99999999999"], "--n: expected an integer from -2147483647 to 2147483647"),
            (["generate", "-p", "x", "--seed", "99999999999999999999"], "from 0 to 18446744073709551615"),
            (["generate", "-p", "x", "--stop-token-ids", "99999999999"], "--stop-token-ids"),
            (["generate", "-p", "x", "--block-size", "17"], "multiple of 16"),
            (["generate", "-p", "x", "--block-size", "7"], "--block-size: expected 16 to 256, got 7"),
            (["generate", "-p", "x", "--max-num-seqs", "100000"], "--max-num-seqs: expected 1 to 65536"),
            (["generate", "-p", "x", "--max-model-len", "1"], "--max-model-len: expected 2 to"),
            (["generate", "-p", "x", "--gpu-memory-utilization", "2"], "--gpu-memory-utilization"),
            (["generate", "", "-p", "x"], "MODEL: expected a folder or a name"),
            (["tokenize", ""], "MODEL: expected a folder or a name"),
            (["plan", "--seed", "-1"], "--seed: expected an integer from 0"),
            (["generate", "-p", "x", "--system", "Be brief."], "--system"),
            (["generate", "-p", "x", "--no-think"], "--no-think"),
            (["generate", "-p", "x", "--dtype", "int4"], "--dtype"),
            (["generate", "-p", "x", "--device", "tpu"], "--device"),
            (["generate", "-p", "x", "--threads", "-1"], "--threads"),
            (["generate", "--prompt-tokens", "1,x"], "--prompt-tokens"),
            (["generate", "--prompt-tokens", "1,2", "--chat"], "--chat"),
            (["generate", "-p", "x", "--chat-template-kwargs", "[1]"], "--chat-template-kwargs"),
            (["bench"], "bench --help"),
            (["bench", "throughput", "--input-len", "5:4"], "--input-len"),
            (["bench", "latency", "--batch", "0"], "--batch"),
            (["tune", "--rows", "64,many"], "--rows: expected an integer"),
            (["tune", "--rows", "64,"], "--rows: expected an integer"),
            (["tune", "--rows", "0"], "--rows: expected 1 to"),
            (["tune", "--algorithms", "0"], "--algorithms: expected 1 to 256, got 0"),
            (["tune", "--repeats", "1001"], "--repeats: expected 1 to 1000"),
            (["tune", "--output", ""], "--output: expected a file"),
            (["tune", "--device", "cpu"], "--device cpu: matrix products are timed on a GPU"),
            (["plan", "--linear-algorithms", ""], "--linear-algorithms: expected a file"),
            (["chat", "--n", "2"], "--n"),
            (["completion", "csh"], "csh"),
            (["completion"], "SHELL"),
        ]
        for arguments, fragment in cases:
            with self.subTest(arguments=arguments):
                self.assert_error(run(*arguments), 2, fragment)

    def test_completions_are_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            result = run("completion", shell)
            self.assert_ok(result)
            self.assertIn("max-num-seqs", result.stdout)
            if shutil.which(shell):
                check = subprocess.run([shell, "-n"], input=result.stdout, encoding="utf-8", capture_output=True)
                self.assertEqual((check.returncode, check.stderr), (0, ""))

    def test_bash_completes_commands_options_and_values(self):
        script = run("completion", "bash").stdout

        def complete(*words, by_lines=False):
            quoted = " ".join(f"'{word}'" for word in words)
            probe = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _quire; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            offered = subprocess.run(["bash", "-c", probe], encoding="utf-8", capture_output=True, check=True).stdout
            return offered.splitlines() if by_lines else offered.split()

        self.assertEqual(complete("quire", "gen"), ["generate"])
        self.assertEqual(complete("quire", "bench", "lat"), ["latency"])
        self.assertIn("--max-model-len", complete("quire", "plan", "--max-m"))
        self.assertEqual(complete("quire", "plan", "--dtype", "f"), ["float32", "float16"])
        self.assertEqual(complete("quire", "bench", "latency", "--ba"), ["--batch"])
        self.assertEqual(complete("quire", "tun"), ["tune"])
        self.assertEqual(complete("quire", "tune", "--ou"), ["--output"])
        self.assertIn("/etc/passwd", complete("quire", "tune", "--output", "/etc/passw"))
        self.assertIn("/etc/passwd", complete("quire", "serve", "--linear-algorithms", "/etc/passw"))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a b.gguf", "a b.txt"):
                (pathlib.Path(folder) / name).touch()
            lines = complete("quire", "generate", "--prompt-file", f"{folder}/a", by_lines=True)
            self.assertEqual(sorted(lines), [f"{folder}/a b.gguf", f"{folder}/a b.txt"])
            self.assertEqual(complete("quire", "inspect", f"{folder}/a", by_lines=True), [f"{folder}/a b.gguf"])


if __name__ == "__main__":
    unittest.main()
