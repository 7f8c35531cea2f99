"""Quantised checkpoints on simulated GPUs."""

import contextlib
import pathlib
import re
import shutil
import struct
import tempfile
import unittest

from gguf_model import read_safetensors, write_safetensors
from support import CPU, SOURCE_DIR, CliTest, gpus, run

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

    def test_a_checkpoint_without_a_fault_meets_the_memory(self):
        for golden in ("gptq-act-order", "ct-pack-act-order", "ct-pack-4bit"):
            self.assert_error(self.load(GOLDENS / golden, env=gpus(fault="0:reserve:1")), 1, "of free memory")


if __name__ == "__main__":
    unittest.main()
