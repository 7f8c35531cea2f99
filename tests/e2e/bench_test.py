"""quire bench."""

import json
import tempfile
import pathlib
import unittest

from support import CliTest, lexicon_config, run

KEYS = {"prompt_tokens", "output_tokens", "elapsed_s", "output_tokens_per_s", "prefill_tokens_per_s", "ttft_ms",
        "tpot_ms", "achieved_gb_s", "read_gb_s", "achieved_gflops", "peak_gflops"}


class Bench(CliTest):
    def test_throughput(self):
        result = run("bench", "throughput", "--num-seqs", "4", "--input-len", "8:32", "--output-len", "4:16", "--json")
        self.assert_ok(result)
        figures = json.loads(result.stdout)
        self.assertLessEqual(KEYS, set(figures))
        for key in KEYS:
            self.assertGreater(figures[key], 0, key)
        # What Python's random module draws with seed 0 for these lengths.
        self.assertEqual((figures["prompt_tokens"], figures["output_tokens"]), EXPECTED_TOTALS)

    def test_latency_with_random_weights_of_a_config_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(lexicon_config(num_hidden_layers=2))
            result = run("bench", "latency", folder, "--load-format", "dummy", "--batch", "2", "--input-len", "16",
                         "--output-len", "8", "--num-iters", "2", "--json")
        self.assert_ok(result)
        figures = json.loads(result.stdout)
        self.assertEqual((figures["prompt_tokens"], figures["output_tokens"]), (64, 32))
        self.assertGreater(figures["achieved_gb_s"], 0)

    def test_counts_drafts(self):
        # Long enough for the drafts that are tried now and then even where they do not pay.
        result = run("bench", "latency", "--input-len", "64", "--output-len", "384", "--num-iters", "1", "--json",
                     "--speculative-config", '{"method": "ngram", "prompt_lookup_min": 1}', "--device", "cpu")
        self.assert_ok(result)
        figures = json.loads(result.stdout)
        self.assertGreater(figures["num_drafts"], 0)
        self.assertGreaterEqual(figures["num_draft_tokens"], figures["num_accepted_draft_tokens"])
        self.assertGreaterEqual(figures["mean_acceptance_length"], 1)

    def test_prints_a_table(self):
        result = run("bench", "latency", "--input-len", "8", "--output-len", "4", "--num-iters", "1")
        self.assert_ok(result)
        for label in ("time to first token", "time per token", "GB/s", "GFLOP/s"):
            self.assertIn(label, result.stdout)

    def test_answers_follow_a_constraint(self):
        arguments = ["bench", "latency", "--batch", "3", "--input-len", "8", "--output-len", "12", "--num-iters", "2", "--json"]
        result = run(*arguments, "--regex", "[a-z]*")
        self.assert_ok(result)
        self.assertEqual(json.loads(result.stdout)["output_tokens"], 72)
        result = run(*arguments, "--choice", "yes")
        self.assert_ok(result)
        self.assertLess(json.loads(result.stdout)["output_tokens"], 72)

    def test_a_workload_that_does_not_fit(self):
        self.assert_error(run("bench", "latency", "--input-len", "4096"), 1, "--input-len")
        self.assert_error(run("bench", "latency", "--output-len", "2", "--regex", "[a-z]{300}"), 1, "at least")


def expected_totals():
    from random import Random

    random = Random(0)
    prompts = [[random.randint(0, 10000) for _ in range(random.randint(8, 32))] for _ in range(4)]
    outputs = [random.randint(4, 16) for _ in range(4)]
    return sum(map(len, prompts)), sum(outputs)


EXPECTED_TOTALS = expected_totals()

if __name__ == "__main__":
    unittest.main()
