"""quire generate on the bundled model."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import unittest

from support import BINARY, LEXICON, CliTest, json_lines, run

GREEDY = ["--temperature", "0", "--max-tokens", "48"]
FIELDS = ["index", "prompt", "text", "token_ids", "finish_reason", "num_prompt_tokens", "num_cached_tokens"]


class Generate(CliTest):
    def test_answers_a_question(self):
        result = run("generate", "--chat", *GREEDY, "-p", "define apple")
        self.assert_ok(result)
        self.assertIn("fruit", result.stdout)

    def test_json_has_exactly_the_fields(self):
        result = run("generate", LEXICON, "--chat", *GREEDY, "--json", "-p", "define apple")
        self.assert_ok(result)
        (line,) = json_lines(result.stdout)
        self.assertEqual(list(line), FIELDS)
        self.assertEqual(line["index"], 0)
        self.assertIn("define apple", line["prompt"])
        self.assertIn("<|im_start|>", line["prompt"])
        self.assertEqual(line["finish_reason"], "stop")
        self.assertGreater(line["num_prompt_tokens"], 4)
        self.assertIsInstance(line["num_cached_tokens"], int)
        self.assertTrue(all(isinstance(token, int) for token in line["token_ids"]))

    def test_prompts_keep_their_order(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompts.txt"
            file.write_text("second\nthird\n")
            result = run("generate", *GREEDY, "--json", "-p", "first", "--prompt-file", file,
                         "--prompt-tokens", "5,6,7", "-p", "[a, b]", "-p", "-x")
        self.assert_ok(result)
        lines = json_lines(result.stdout)
        self.assertEqual([line["index"] for line in lines], [0, 1, 2, 3, 4, 5])
        self.assertEqual([line["prompt"] for line in lines], ["first", "second", "third", None, "[a, b]", "-x"])
        self.assertEqual(lines[3]["num_prompt_tokens"], 3)

    def test_jsonl_fields_override_options(self):
        requests = [
            {"prompt": "define apple", "max_tokens": 3},
            {"prompt_token_ids": [40, 41, 42], "max_tokens": 2, "ignore_eos": True},
            {"messages": [{"role": "user", "content": "define pear"}], "temperature": 0},
            {"prompt": "define plum", "n": 2, "logprobs": 1, "max_tokens": 2, "ignore_eos": True},
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompts.jsonl"
            file.write_text("".join(json.dumps(request) + "\n" for request in requests))
            result = run("generate", "--json", "--temperature", "0", "--max-tokens", "40", "--prompt-file", file)
        self.assert_ok(result)
        lines = json_lines(result.stdout)
        self.assertEqual([line["index"] for line in lines], [0, 1, 2, 3, 3])
        self.assertLessEqual(len(lines[0]["token_ids"]), 3)
        self.assertEqual((len(lines[1]["token_ids"]), lines[1]["finish_reason"]), (2, "length"))
        self.assertIn("define pear", lines[2]["prompt"])
        self.assertIn("fruit", lines[2]["text"])
        self.assertEqual([line["output_index"] for line in lines[3:]], [0, 1])
        for line in lines[3:]:
            self.assertEqual(len(line["logprobs"]), 2)
            entry = line["logprobs"][0][0]
            self.assertEqual(list(entry), ["token_id", "logprob", "rank", "decoded_token"])
            self.assertEqual(entry["token_id"], line["token_ids"][0])
            self.assertLessEqual(entry["logprob"], 0)

    def test_standard_input_is_prompts(self):
        result = run("generate", "--json", *GREEDY, stdin="define apple\ndefine pear")
        self.assert_ok(result)
        self.assertEqual([line["prompt"] for line in json_lines(result.stdout)], ["define apple", "define pear"])

    def test_several_outputs_are_headed(self):
        result = run("generate", *GREEDY, "--chat", "-p", "define apple", "-p", "define pear")
        self.assert_ok(result)
        self.assertRegex(result.stdout, r"\A--- 0\n[^\n]+\n--- 1\n")

    def test_no_prompt(self):
        self.assert_error(run("generate", stdin=""), 1, "standard input holds no prompt")

    def test_stop_strings(self):
        plain = json_lines(run("generate", "--chat", *GREEDY, "--json", "-p", "define apple").stdout)[0]
        word = plain["text"].split()[3]
        cut = json_lines(run("generate", "--chat", *GREEDY, "--json", "--stop", word, "-p", "define apple").stdout)[0]
        self.assertEqual(cut["text"], plain["text"][: plain["text"].index(word)])
        self.assertEqual(cut["finish_reason"], "stop")
        kept = json_lines(run("generate", "--chat", *GREEDY, "--json", "--stop", word,
                              "--include-stop-str-in-output", "-p", "define apple").stdout)[0]
        self.assertEqual(kept["text"], cut["text"] + word)

    def test_a_seed_repeats(self):
        def sample(*options):
            result = run("generate", "--temperature", "3", "--max-tokens", "24", "--json", *options,
                         "-p", "define light")
            return [line["token_ids"] for line in json_lines(result.stdout)]

        self.assertEqual(sample("--seed", "7"), sample("--seed", "7"))
        self.assertNotEqual(sample("--seed", "7"), sample("--seed", "8"))
        two = sample("--seed", "7", "--n", "2")
        self.assertEqual(two[0], sample("--seed", "7")[0])
        self.assertNotEqual(two[0], two[1])

    def test_results_do_not_depend_on_how_they_are_computed(self):
        def outputs(*options):
            prompts = sum((["-p", f"define {word}"] for word in ("apple", "house", "run", "green", "time")), [])
            result = run("generate", "--chat", "--temperature", "0.8", "--seed", "3", "--max-tokens", "32", "--json",
                         *options, *prompts)
            self.assert_ok(result)
            return [line["token_ids"] for line in json_lines(result.stdout)]

        expected = outputs()
        for options in (["--max-num-batched-tokens", "8"], ["--max-num-seqs", "1"], ["--threads", "1"],
                        ["--no-enable-prefix-caching"], ["--no-async-scheduling"], ["--block-size", "64"],
                        ["--num-gpu-blocks-override", "9", "--max-model-len", "128"]):
            with self.subTest(options=options):
                self.assertEqual(outputs(*options), expected)

    def test_works_without_a_tokenizer(self):
        result = run("generate", "--skip-tokenizer-init", "--prompt-tokens", "40,41,42", "--max-tokens", "4",
                     "--ignore-eos", "--temperature", "0")
        self.assert_ok(result)
        self.assertRegex(result.stdout, r"\A\d+,\d+,\d+,\d+\n\Z")

    def test_prefix_caching_shows_in_the_counts(self):
        shared = " ".join(["word"] * 64)
        result = run("generate", "--json", "--max-tokens", "2", "--max-num-seqs", "1", "-p", shared, "-p", shared)
        self.assert_ok(result)
        first, second = json_lines(result.stdout)
        self.assertEqual(first["num_cached_tokens"], 0)
        self.assertGreaterEqual(second["num_cached_tokens"], 48)
        self.assertEqual(first["num_prompt_tokens"], second["num_prompt_tokens"])

    def test_an_interrupt_prints_what_is_there(self):
        long = {"ignore_eos": True, "max_tokens": None}
        requests = [{"prompt": "short", "max_tokens": 1}] + [{"prompt": f"word {i}", **long} for i in range(63)]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompts.jsonl"
            file.write_text("".join(json.dumps(request) + "\n" for request in requests))
            process = subprocess.Popen([BINARY, "generate", "--json", "--temperature", "0", "--prompt-file", file],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       encoding="utf-8")
            # The first output says that the others are on their way.
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, stderr = process.communicate(timeout=300)
        self.assertEqual((process.returncode, stderr), (130, ""))
        lines = json_lines(first + rest)
        self.assertEqual([line["index"] for line in lines], list(range(64)))
        self.assertEqual(lines[0]["finish_reason"], "length")
        self.assertIn("abort", {line["finish_reason"] for line in lines})

    def on_a_terminal(self, *arguments):
        """What the command writes to standard error, which is a terminal, and to standard output."""
        leader, follower = pty.openpty()
        process = subprocess.Popen([BINARY, "generate", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=follower, encoding="utf-8", env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        seen = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        stdout, _ = process.communicate(timeout=120)
        os.close(leader)
        self.assertEqual(process.returncode, 0)
        return seen, stdout

    def test_drafts_are_counted_on_terminals(self):
        ask = ("-p", "apple pear apple pear apple", "--max-tokens", "60", "--temperature", "0", "--ignore-eos")
        drafts = ("--speculative-config", '{"method": "ngram", "prompt_lookup_min": 1, "adaptive": false}')
        seen, stdout = self.on_a_terminal(*ask, *drafts)
        self.assertRegex(seen, rb"[1-9]\d* of [1-9]\d* draft tokens were kept")
        self.assertEqual(run("generate", *ask, *drafts).stdout, stdout)
        self.assertNotIn(b"draft", self.on_a_terminal(*ask)[0])

    def test_progress_is_for_terminals(self):
        seen, stdout = self.on_a_terminal(*GREEDY, "--chat", "-p", "define apple")
        self.assertIn(b"Generating", seen)
        shares = [int(share) for share in re.findall(rb"(\d+) %", seen)]
        self.assertEqual(shares, sorted(shares))
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen[-40:])
        self.assertIn("fruit", stdout)
        self.assertNotIn("\x1b", stdout)


if __name__ == "__main__":
    unittest.main()
