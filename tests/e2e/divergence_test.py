"""How far activations rounded to int8 move the bundled model's answers, with weights as files have them."""

import json
import math
import pathlib
import shutil
import struct
import tempfile
import unittest

import gguf_model
from support import CPU, LEXICON, SOURCE_DIR, CliTest, json_lines, run

GROUP = 64
NUM_CONVERSATIONS = 4
NUM_LISTED = 20  # the most probable tokens; the others count as one


def transposed(data, rows, columns, size):
    elements = [data[at:at + size] for at in range(0, len(data), size)]
    return b"".join(elements[row * columns + column] for column in range(columns) for row in range(rows))


def as_gptq(source, out):
    """The same numbers, scales and zero points in GPTQ's layout, which is compressed-tensors' packed one transposed."""
    shutil.copytree(source, out)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": 4,
                                     "group_size": GROUP, "sym": False, "desc_act": False}
    (out / "config.json").write_text(json.dumps(config))
    names = {"weight_packed": "qweight", "weight_scale": "scales", "weight_zero_point": "qzeros"}
    tensors = {}
    for name, (dtype, shape, data) in gguf_model.read_safetensors(source / "model.safetensors").items():
        module, leaf = name.rsplit(".", 1)
        if leaf in names:
            data = transposed(data, *shape, 2 if dtype == "BF16" else 4)
            tensors[f"{module}.{names[leaf]}"] = (dtype, shape[::-1], data)
        elif leaf != "weight_shape":
            tensors[name] = (dtype, shape, data)
        if leaf == "weight_packed":
            groups = [place // GROUP for place in range(shape[1] * 8)]
            tensors[f"{module}.g_idx"] = ("I32", [len(groups)], struct.pack(f"<{len(groups)}i", *groups))
    gguf_model.write_safetensors(out / "model.safetensors", tensors)


def divergence(expected, actual):
    """Kullback-Leibler, of {token: log-probability} of the most probable tokens."""
    both = [token for token in expected if token in actual]
    pairs = [(math.exp(expected[token]), math.exp(actual[token])) for token in both]
    pairs.append(tuple(max(1e-12, 1 - sum(column)) for column in zip(*pairs)))
    return sum(p * math.log(p / q) for p, q in pairs)


class Divergence(CliTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        golden = json.loads((SOURCE_DIR / "tests" / "golden" / "lexicon" / "prompts.json").read_text())
        cls.conversations = [(one["prompt_ids"], one["output_ids"]) for one in golden[:NUM_CONVERSATIONS]]

    def predictions(self, model, dtype):
        """Of the tokens of answers, and not of questions, which nobody asks the model to predict."""
        prompts = [argument for question, answer in self.conversations
                   for argument in ("--prompt-tokens", ",".join(map(str, question + answer)))]
        result = run("generate", model, *prompts, "--max-tokens", "1", "--temperature", "0", "--json", "--prompt-logprobs",
                     NUM_LISTED, "--dtype", dtype, env=CPU)
        self.assert_ok(result)
        return [{entry["token_id"]: entry["logprob"] for entry in position}
                for (question, _), line in zip(self.conversations, json_lines(result.stdout))
                for position in line["prompt_logprobs"][len(question):]]

    def assert_close(self, model):
        pairs = list(zip(self.predictions(model, "float32"), self.predictions(model, "bfloat16")))
        self.assertGreater(len(pairs), 10 * NUM_CONVERSATIONS)
        mean = sum(divergence(*pair) for pair in pairs) / len(pairs)
        self.assertGreater(mean, 0)
        self.assertLessEqual(mean, 1e-3)

    def test_what_quantize_writes_and_gptq(self):
        saved = self.folder / "saved"
        self.assert_ok(run("quantize", LEXICON, saved, "--scheme", "int4", "--group-size", GROUP, "--json"))
        self.assertIn(f"groups of {GROUP}", run("inspect", saved).stdout)
        self.assert_close(saved)
        gptq = self.folder / "gptq"
        as_gptq(saved, gptq)
        self.assertIn("GPTQ, 4 bits", run("inspect", gptq).stdout)
        self.assert_close(gptq)
        self.assertEqual(self.predictions(gptq, "float32"), self.predictions(saved, "float32"))


if __name__ == "__main__":
    unittest.main()
