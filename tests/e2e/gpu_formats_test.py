"""Quantised checkpoints on simulated GPUs, and adapters of quantised models and with drafts there and on the CPU."""

import contextlib
import json
import pathlib
import re
import shutil
import struct
import tempfile
import unittest

import gguf_model
from gguf_model import read_safetensors, write_safetensors
from lora_adapters import write_adapter
from support import CPU, LEXICON, PROMPTS, SOURCE_DIR, CliTest, gpus, json_lines, run

GOLDENS = SOURCE_DIR / "tests" / "golden" / "quantised"
LAYER = "model.layers.0.mlp.down_proj."


@contextlib.contextmanager
def changed(golden, name, offset, *values, code="i"):
    """A golden checkpoint with some integers of a tensor replaced, from number `offset` on."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copy(GOLDENS / golden / "config.json", folder)
        tensors = read_safetensors(GOLDENS / golden / "model.safetensors")
        dtype, shape, data = tensors[LAYER + name]
        new = struct.pack(f"<{len(values)}{code}", *values)
        begin = offset * struct.calcsize(code)
        tensors[LAYER + name] = dtype, shape, data[:begin] + new + data[begin + len(new):]
        write_safetensors(folder / "model.safetensors", tensors)
        yield folder


class BadCheckpoints(CliTest):
    """They are refused before any memory of a GPU is taken, which fails here."""

    def load(self, folder, *arguments, env):
        return run("generate", folder, "--skip-tokenizer-init", "--prompt-tokens", "1,2,3", "--max-tokens", "2", "--ignore-eos",
                   *arguments, env=env)

    def assert_refused(self, folder, *fragments):
        self.assert_error(self.load(folder, env=gpus(fault="0:reserve:1")), 1, f"{folder}/model.safetensors: ", *fragments)

    def test_groups_that_there_are_not(self):
        for golden, name in (("gptq-act-order", "g_idx"), ("ct-pack-act-order", "weight_g_idx")):
            for group in (99, -1):
                with self.subTest(golden=golden, group=group), changed(golden, name, 100, group) as folder:
                    sentence = f"the tensor {LAYER}{name} holds {group} at index 100; expected a group from 0 to 3."
                    self.assert_refused(folder, sentence)
                    self.assert_error(self.load(folder, env=CPU), 1, f"{folder}/model.safetensors: {sentence}")

    def test_groups_of_sizes_that_a_gpu_does_not_take(self):
        groups = [*([0] * 33), *([1] * 31), *([2] * 32), *([3] * 32)]
        with changed("gptq-act-order", "g_idx", 0, *groups) as folder:
            self.assert_refused(folder, f"the tensor {LAYER}g_idx puts 33 inputs into groups before group 1; expected a "
                                "multiple of 32, as a GPU needs it.")
            for arguments, env in ((("--dtype", "float32"), gpus()), (("--device", "cpu"), CPU)):
                self.assert_ok(self.load(folder, *arguments, env=env))

    def test_a_shape_that_is_not_the_layers(self):
        with changed("ct-pack-4bit", "weight_shape", 0, 63, code="q") as folder:
            self.assert_refused(folder, f"the tensor {LAYER}weight_shape holds [63, 128]; config.json makes the layer's "
                                "shape [64, 128].")

    def test_groups_that_do_not_divide_a_layer(self):
        for golden in ("awq", "ct-pack-4bit"):
            with tempfile.TemporaryDirectory() as folder:
                config = (GOLDENS / golden / "config.json").read_text()
                (pathlib.Path(folder) / "config.json").write_text(re.sub(r'"group_size": \d+', '"group_size": 96', config))
                for env in (CPU, gpus()):
                    self.assert_error(run("plan", folder, env=env), 1, "stores multiples of 96")

    def test_a_layer_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            config = json.loads((GOLDENS / "ct-pack-4bit" / "config.json").read_text())
            for group in config["quantization_config"]["config_groups"].values():
                group["targets"] = ["model.layers.77.mlp.down_proj"]
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            self.assert_error(run("plan", folder, env=CPU), 1, f"error: {folder}/config.json: quantization_config quantises the "
                              "layer model.layers.77.mlp.down_proj, which the model does not have")

    def test_a_checkpoint_without_a_fault_meets_the_memory(self):
        for golden in ("gptq-act-order", "ct-pack-act-order", "ct-pack-4bit"):
            self.assert_error(self.load(GOLDENS / golden, env=gpus(fault="0:reserve:1")), 1, "of free memory")


class Adapters(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.adapters = {"zero": write_adapter(cls.folder / "zero", strength=0), "some": write_adapter(cls.folder / "some"),
                        "other": write_adapter(cls.folder / "other", seed=1, rank=20)}

    def tokens_of(self, model, loras, *arguments, env):
        """The ids of greedy answers to one prompt, with each of the adapters."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": PROMPTS[0], "lora": lora}) + "\n" for lora in loras))
        names = [name for name in self.adapters if name in loras]
        options = [text for name in names for text in ("--lora", f"{name}={self.adapters[name]}")]
        result = run("generate", model, *options, "--temperature", "0", "--max-tokens", "12", "--json", "--chat",
                     "--prompt-file", prompts, *arguments, env=env)
        self.assert_ok(result)
        return [line["token_ids"] for line in json_lines(result.stdout)]

    def check_of(self, model, *arguments, env):
        """An adapter's answers are the same beside others; the zero adapter's are the base's, and the others' not."""
        base, = self.tokens_of(model, [None], *arguments, env=env)
        alone, = self.tokens_of(model, ["some"], *arguments, env=env)
        self.assertNotEqual(alone, base)
        together = self.tokens_of(model, ["some", "zero", None, "other", "some"], *arguments, env=env)
        self.assertEqual([together[0], together[1], together[2], together[4]], [alone, base, base, alone])
        self.assertEqual(len({tuple(answer) for answer in together}), 3)
        return together

    def test_of_a_gguf_file(self):
        path = gguf_model.write(gguf_model.convert(LEXICON, "Q8_0"), self.folder / "lexicon.gguf")
        expected = self.check_of(path, "--dtype", "float32", env=CPU)
        self.assertEqual(self.check_of(path, "--dtype", "float32", env=gpus()), expected)
        self.check_of(path, "--dtype", "bfloat16", env=gpus())

    def test_of_weights_that_are_rounded_while_they_load(self):
        for to in ("int8", "int4", "fp8"):
            for env in (CPU, gpus(2 if to == "int4" else 1)):
                parallel = ("--tensor-parallel-size", env.get("QUIRE_SIMULATED_GPUS", "1"))
                with self.subTest(to=to, env=env):
                    self.check_of(LEXICON, "--dtype", "bfloat16", "--quantization", to, *parallel, env=env)

    def test_drafts_change_no_answer_of_an_adapter(self):
        ask = ("generate", LEXICON, "--lora", f"pirate={LEXICON}-pirate", "--temperature", "0", "--max-tokens", "40", "--chat", "--json",
               "--dtype", "float32", *(text for prompt in PROMPTS for text in ("-p", prompt)))
        plain = run(*ask, env=CPU)
        self.assert_ok(plain)
        for method, model in (("eagle3", f"{LEXICON}-eagle3"), ("draft_model", str(LEXICON))):
            drafts = json.dumps({"method": method, "model": model, "num_speculative_tokens": 4, "adaptive": False})
            for env in (CPU, gpus(), gpus(decoder_step=1)):
                with self.subTest(method=method, env=env):
                    drafted = run(*ask, "--speculative-config", drafts, env=env)
                    self.assert_ok(drafted)
                    self.assertEqual([line["token_ids"] for line in json_lines(drafted.stdout)],
                                     [line["token_ids"] for line in json_lines(plain.stdout)])

    def test_trained_biases_of_a_gguf_llama(self):
        goldens = SOURCE_DIR / "tests" / "golden"
        path = gguf_model.write(gguf_model.convert(goldens / "models" / "llama-bias"), self.folder / "llama.gguf")
        for name in ("biases", "biases-lora-only"):
            folder = goldens / "lora" / name
            expected = json.loads((folder / "golden.json").read_text())["prompts"]
            for prompt in expected:
                for env in (CPU, gpus()):
                    result = run("generate", path, "--skip-tokenizer-init", "--lora", f"{name}={folder}", "--dtype", "float32",
                                 "--prompt-tokens", ",".join(map(str, prompt["prompt_token_ids"])), "--temperature", "0",
                                 "--ignore-eos", "--max-tokens", len(prompt["output_token_ids"]), "--json", env=env)
                    self.assert_ok(result)
                    self.assertEqual(json.loads(result.stdout)["token_ids"], prompt["output_token_ids"])


if __name__ == "__main__":
    unittest.main()
