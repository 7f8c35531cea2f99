"""--speculative-config: the same answers in fewer steps, and what is refused."""

import json
import unittest

from server_support import serving
from support import CPU, LEXICON, SOURCE_DIR, CliTest, generate, json_lines, run

TINY = str(SOURCE_DIR / "tests" / "golden" / "models" / "qwen3-tied")

METHODS = (
    {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 4},
    {"method": "suffix", "num_speculative_tokens": 16},
    {"method": "draft_model", "model": str(LEXICON), "quantization": "int4", "adaptive": False},
    {"method": "eagle3", "model": str(LEXICON.parent / "lexicon-eagle3"), "num_speculative_tokens": 4,
     "adaptive": False},
)
# An answer that repeats itself: a token that is always the most likely.
REPEATING = {"prompt": "define apple", "max_tokens": 60, "temperature": 0, "ignore_eos": True,
             "logit_bias": {"40": 100}}


def speculative(**fields):
    return ("--speculative-config", json.dumps(fields))


class Speculative(CliTest):
    def test_generate_answers_the_same(self):
        plain = generate(env=CPU)
        self.assert_ok(plain)
        for method in METHODS:
            drafted = generate(*speculative(**method), env=CPU)
            self.assert_ok(drafted)
            self.assertEqual(drafted.stdout, plain.stdout)

    def test_sampled_answers_are_the_same(self):
        arguments = ("generate", "--temperature", "1.2", "--seed", "7", "--max-tokens", "80", "--json", "--n", "3",
                     "-p", "apple pear apple pear apple")
        plain = run(*arguments, env=CPU)
        self.assert_ok(plain)
        for method in METHODS:
            drafted = run(*arguments, *speculative(**method), env=CPU)
            self.assert_ok(drafted)
            self.assertEqual(json_lines(drafted.stdout), json_lines(plain.stdout))

    def test_serve_answers_the_same(self):
        def answers(*arguments):
            with serving(*arguments, env=CPU) as server:
                return [server.post("/v1/completions", {**REPEATING, **more})[2]["choices"]
                        for more in ({}, {"n": 2, "temperature": 1, "seed": 3}, {"logprobs": 2}, {"stop": "IIIIIII"})]

        plain = answers()
        self.assertEqual([choice["finish_reason"] for choice in plain[-1]], ["stop"])
        for method in METHODS:
            self.assertEqual(answers(*speculative(**method)), plain)

    def test_usage_counts_drafts_where_asked_for(self):
        with serving(*speculative(**METHODS[0]), env=CPU) as server:
            def details(**fields):
                return server.post("/v1/completions", {**REPEATING, **fields})[2]["usage"]["completion_tokens_details"]

            self.assertEqual(details(), {"reasoning_tokens": 0})
            asked = details(return_draft_usage=True)
            self.assertGreater(asked["accepted_prediction_tokens"], 0)
            self.assertGreaterEqual(asked["rejected_prediction_tokens"], 0)
            self.assertGreater(asked["mean_acceptance_length"], 1)

    def test_usage_counts_no_drafts_behind_a_stop(self):
        # Each token is an I: the sampled one of each step follows drafts that were kept.
        with serving(*speculative(**METHODS[0], num_speculative_tokens=16, adaptive=False), env=CPU) as server:
            for count in range(2, 12):
                usage = server.post("/v1/completions", {**REPEATING, "stop": "I" * count, "return_draft_usage": True})[2]["usage"]
                self.assertEqual(usage["completion_tokens"], count)
                self.assertLess(usage["completion_tokens_details"]["accepted_prediction_tokens"], count)

    def test_usage_counts_no_forced_text_as_drafts(self):
        schema = {"const": "cats like to sleep in the sun, and zebras do remember it."}
        request = {"messages": [{"role": "user", "content": "define apple"}], "max_tokens": 60,
                   "return_draft_usage": True,
                   "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        with serving(env=CPU) as server:
            body = server.post("/v1/chat/completions", request)[2]
        self.assertEqual(json.loads(body["choices"][0]["message"]["content"]), schema["const"])
        details = body["usage"]["completion_tokens_details"]
        self.assertEqual(details["accepted_prediction_tokens"], 0)
        self.assertEqual(details["rejected_prediction_tokens"], 0)
        self.assertIsNone(details["mean_acceptance_length"])

    def test_metrics_count_drafts(self):
        with serving(*speculative(**METHODS[0]), "--metrics-prefix", "vllm:", env=CPU) as server:
            server.post("/v1/completions", REPEATING)
            metrics = server.metrics()
        self.assertGreater(metrics["vllm:spec_decode_num_drafts_total"], 0)
        self.assertGreater(metrics["vllm:spec_decode_num_accepted_tokens_total"], 0)
        self.assertGreaterEqual(metrics["vllm:spec_decode_num_draft_tokens_total"],
                                metrics["vllm:spec_decode_num_accepted_tokens_total"])
        self.assertEqual(metrics["vllm:spec_decode_num_accepted_tokens_per_pos_total"],
                         metrics["vllm:spec_decode_num_accepted_tokens_total"])

    def test_what_is_refused(self):
        usage = [("[]", "JSON object"), ("{}", "no method"), ("{", "JSON"), ('{"method": 1}', "method is 1"),
                 ('{"method": "ngram", "k": 3}', 'no field "k"'),
                 ('{"method": "ngram", "num_speculative_tokens": "4"}', "a string")]
        for text, expected in usage:
            self.assert_error(run("generate", "-p", "a", "--speculative-config", text), 2, expected)
        fields = [({"method": "medusa"}, 'expected "ngram", "suffix", "draft_model", "eagle" or "eagle3"'),
                  ({"method": "eagle3"}, "model is missing"),
                  ({"method": "eagle3", "model": TINY}, "names no EAGLE-3 head"),
                  ({"method": "draft_model"}, "model is missing"),
                  ({"method": "draft_model", "model": "no/such"}, "the draft model no/such"),
                  ({"method": "draft_model", "model": TINY}, "its vocabulary has 128 tokens"),
                  ({"method": "ngram", "num_speculative_tokens": 0}, "expected 1 to 16"),
                  ({"method": "ngram", "num_speculative_tokens": 100}, "expected 1 to 16"),
                  ({"method": "ngram", "prompt_lookup_min": 3, "prompt_lookup_max": 2}, "at most prompt_lookup_max"),
                  ({"method": "ngram", "quantization": "int8"}, 'expected none with method "ngram"'),
                  ({"method": "suffix", "draft_tensor_parallel_size": 7}, 'expected none with method "suffix"'),
                  ({"method": "eagle", "model": str(LEXICON)}, f"the EAGLE head {LEXICON}: {LEXICON}/model.safetensors: the "
                   "tensor model.embed_tokens.weight"),
                  ({"method": "ngram", "synthetic_acceptance_length": 9.5}, "expected a number from 1 to 9"),
                  ({"method": "suffix", "suffix_decoding_max_tree_depth": 0}, "expected 2 to 256")]
        for values, expected in fields:
            self.assert_error(run("generate", "-p", "a", *speculative(**values), env=CPU), 1, expected)
        self.assert_error(run("generate", "-p", "a", "--pipeline-parallel-size", "2", "--threads", "2",
                              *speculative(method="draft_model", model=str(LEXICON), draft_tensor_parallel_size=2), env=CPU),
                          1, "draft_tensor_parallel_size is 2; expected 1")

    def test_stages_change_no_answer(self):
        ask = ("generate", "-p", "apple pear apple pear apple", "--temperature", "0", "--max-tokens", "40", "--json")
        plain = run(*ask, env=CPU)
        self.assert_ok(plain)
        for drafts in ({"method": "ngram"}, {"method": "draft_model", "model": str(LEXICON)},
                       {"method": "eagle3", "model": f"{LEXICON}-eagle3"}):
            with self.subTest(**drafts):
                staged = run(*ask, "--pipeline-parallel-size", "2", "--threads", "2", *speculative(**drafts), env=CPU)
                self.assert_ok(staged)
                self.assertEqual([line["token_ids"] for line in json_lines(staged.stdout)],
                                 [line["token_ids"] for line in json_lines(plain.stdout)])


if __name__ == "__main__":
    unittest.main()
