"""quire check: models that are damaged in one way each, and references."""

import json
import pathlib
import tempfile
import unittest

from damaged_models import HUGE, INFINITY, NAN, WEIGHTS, ZERO, with_header, with_values, without_tensor
from support import FLOAT8, LEXICON, CliTest, lexicon_config, model_copy, run

NORM = "model.norm.weight"
MATRIX = "model.layers.1.mlp.down_proj.weight"


def changed(name, change):
    """A JSON file of the bundled model, changed in place by `change`."""
    content = json.loads((LEXICON / name).read_text())
    change(content)
    return json.dumps(content)


class Check(CliTest):
    def problems(self, folder, *arguments):
        """[(part, message)]; the exit code says whether there are some, and the text names each."""
        result = run("check", folder, "--json", *arguments)
        check = json.loads(result.stdout)
        problems = [(problem["part"], problem["message"]) for problem in check["problems"]]
        self.assertEqual(result.returncode, 1 if problems else 0, result.stderr)
        self.assertEqual(check["ok"], not problems)
        return problems

    def assert_found(self, problems, part, *fragments):
        messages = [message for found, message in problems if found == part]
        self.assertTrue(messages, problems)
        for fragment in fragments:
            self.assertTrue(any(fragment in message for message in messages), problems)

    def test_a_sound_model(self):
        result = run("check")
        self.assert_ok(result)
        for fragment in ("8,192 tokens; the model has 8,192", "renders a conversation", "16 tokens on the CPU",
                         "No problem was found."):
            self.assertIn(fragment, result.stdout)
        check = json.loads(run("check", "--json").stdout)
        self.assertTrue(check["ok"])
        self.assertEqual(len(check["answer"]["logprobs"]), 16)
        norm = next(tensor for tensor in check["tensors"] if tensor["name"] == NORM)
        self.assertEqual((norm["num_nan"], norm["num_infinite"]), (0, 0))
        self.assertLess(norm["min"], norm["max"])

    def test_a_model_without_a_tokenizer(self):
        self.assertEqual(self.problems(FLOAT8), [])
        with model_copy(without=("tokenizer.json",)) as folder:
            ((part, message),) = self.problems(folder)
            self.assertEqual(part, "tokenizer")
            self.assertIn("there is no tokenizer.json beside the chat template", message)

    def test_one_cause_is_told_once_and_what_follows_is_not_tried(self):
        weights = WEIGHTS[:100_000]
        with model_copy(model__safetensors=weights) as folder:
            ((part, message),) = self.problems(folder)
            self.assertEqual(part, "weights")
            self.assertIn("it is truncated", message)
        with model_copy(config__json="{}") as folder:
            result = run("check", folder)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stdout, r"tokenizer +not tried\n +chat template +not tried")

    def test_values(self):
        for value, count, sentence in (
            (NAN, 3, "3 of "), (NAN, 3, " values are NaN."), (INFINITY, 1, "1 of "),
            (ZERO, None, "values are zero."), (HUGE, 1, "expected magnitudes up to 10000"),
        ):
            with self.subTest(sentence=sentence):
                with model_copy(model__safetensors=with_values(MATRIX, value, count)) as folder:
                    self.assert_found(self.problems(folder), "weights", f"{MATRIX} (", sentence)

    def test_problems_are_listed_for_people(self):
        with model_copy(model__safetensors=with_values(NORM, NAN)) as folder:
            result = run("check", folder)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn(f"weights: {NORM} (", result.stdout)
        self.assertIn("run: No token can be chosen", result.stdout)
        self.assertNotIn("No problem", result.stdout)

    def test_files_and_shapes(self):
        def transpose(header):
            header[MATRIX]["shape"].reverse()

        def rename(header):
            header["other"] = header.pop(MATRIX)

        for name, weights, part, fragment in (
            ("another shape", with_header(transpose), "run", MATRIX),
            ("a tensor is missing", without_tensor(MATRIX), "run", MATRIX),
            ("a tensor has another name", with_header(rename), "run", "the tensor other "),
            ("the file is cut off", WEIGHTS[:-100], "weights", "model.safetensors"),
            ("no such format", b"weights", "weights", "model.safetensors"),
        ):
            with self.subTest(name), model_copy(model__safetensors=weights) as folder:
                self.assert_found(self.problems(folder), part, fragment)
        with model_copy(config__json="{") as folder:
            self.assert_found(self.problems(folder), "config", "config.json")

    def test_tokenizer(self):
        def add_token(content):
            content["added_tokens"].append({**content["added_tokens"][0], "id": 8192, "content": "<|new|>"})

        for files, fragment in (
            ({"tokenizer__json": "{"}, "tokenizer.json"),
            ({"tokenizer__json": changed("tokenizer.json", add_token)}, "has ids up to 8192"),
            ({"tokenizer_config__json": changed("tokenizer_config.json",
                                                lambda content: content.update(eos_token="<|gone|>"))},
             'eos_token "<|gone|>"'),
            ({"config__json": lexicon_config(eos_token_id=None), "generation_config__json": "{}"},
             "Nothing ends an answer"),
        ):
            with self.subTest(fragment), model_copy(**files) as folder:
                self.assert_found(self.problems(folder), "tokenizer", fragment)

    def test_chat_template(self):
        for source, fragment in (
            ("{% for %}", "line 1"),
            ("{{ messages[0].content }}", "without"),
            ("{% for m in messages %}{{ m.content }}<|nothing|>{% endfor %}", "<|nothing|>"),
        ):
            with self.subTest(source), model_copy(chat_template__jinja=source) as folder:
                self.assert_found(self.problems(folder), "chat template", fragment)

    def test_references(self):
        with tempfile.TemporaryDirectory() as temporary:
            reference = pathlib.Path(temporary) / "reference.json"
            self.assert_ok(run("check", "--write-reference", reference))
            kept = json.loads(reference.read_text())
            self.assertEqual(kept["tolerance"], 0.01)
            self.assertEqual(len(kept["output_token_ids"]), 16)
            self.assertIn("the same", run("check", "--reference", reference).stdout)
            self.assertEqual(self.problems(LEXICON, "--reference", reference), [])

            weights = with_values(MATRIX, b"\x80\x3f", 40000)  # sound values, but not these
            with model_copy(model__safetensors=weights) as folder:
                problems = self.problems(folder, "--reference", reference)
            self.assertEqual([part for part, _ in problems], ["reference"])
            self.assertRegex(problems[0][1], r"output token 0 is|Output token \d+ is|output token \d+ is")

            reference.write_text(json.dumps({**kept, "prompt_token_ids": kept["prompt_token_ids"][1:]}))
            self.assert_found(self.problems(LEXICON, "--reference", reference), "reference", "the tokenizer differs")
            reference.write_text(json.dumps({**kept, "prompt": "another"}))
            self.assert_found(self.problems(LEXICON, "--reference", reference), "reference", "the chat template differs")
            reference.write_text(json.dumps({**kept, "prompt_token_ids": [99999]}))
            self.assert_found(self.problems(LEXICON, "--reference", reference), "run", "99999")

    def test_no_reference_is_written_of_a_damaged_model(self):
        with tempfile.TemporaryDirectory() as temporary, \
                model_copy(model__safetensors=with_values(MATRIX, NAN, 1)) as folder:
            reference = pathlib.Path(temporary) / "reference.json"
            self.assertEqual(run("check", folder, "--write-reference", reference).returncode, 1)
            self.assertFalse(reference.exists())

    def test_wrong_usage(self):
        self.assert_error(run("check", "--reference", "a", "--write-reference", "b"), 2, "--write-reference")
        self.assert_error(run("check", "--nothing"), 2, "--nothing")
        self.assert_error(run("check", "--reference", "/nowhere.json"), 1, "/nowhere.json")
        self.assert_error(run("check", "/nowhere"), 1, "/nowhere")
        with tempfile.NamedTemporaryFile(mode="w", suffix=".json") as file:
            file.write('{"quire_reference": 1}')
            file.flush()
            self.assert_error(run("check", "--reference", file.name), 1, "there is no tolerance")


if __name__ == "__main__":
    unittest.main()
