"""quire inspect of LoRA adapters, as PEFT writes them."""

import json
import pathlib
import shutil
import tempfile
import unittest

from gguf_model import read_safetensors, write_safetensors
from support import SOURCE_DIR, CliTest, run

ADAPTERS = SOURCE_DIR / "tests" / "golden" / "lora"


class Folders(CliTest):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def adapter(self, case="lora", config=None, tensors=None):
        """A copy of one with some fields of its config replaced, and its tensors by what a function makes of them."""
        folder = self.folder / "adapter"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ADAPTERS / case, folder)
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        if tensors:
            path = folder / "adapter_model.safetensors"
            write_safetensors(path, tensors(read_safetensors(path)))
        return folder


class Inspect(Folders):
    def test_table_and_json(self):
        table = run("inspect", ADAPTERS / "patterns", "--tensors")
        self.assert_ok(table)
        for part in ("adapter     rsDoRA", "base model  quire/llama3", "rank        1 to 5", "alpha       1 to 4",
                     "8: down_proj (2), q_proj (2), up_proj (2), v_proj (2)", "model.layers.1.mlp.up_proj"):
            self.assertIn(part, table.stdout)
        info = json.loads(run("inspect", ADAPTERS / "patterns", "--json").stdout)
        self.assertEqual((info["kind"], info["base_model"], len(info["modules"])), ("rsDoRA", "quire/llama3", 8))
        up = next(module for module in info["modules"] if module["name"] == "model.layers.1.mlp.up_proj")
        self.assertEqual((up["rank"], up["alpha"], up["scale"], up["inputs"], up["outputs"]), (1, 4, 4, 32, 48))
        self.assertEqual(info["weight_bytes"], 4 * info["num_parameters"])

    def test_every_kind(self):
        for case in sorted(path.name for path in ADAPTERS.iterdir()):
            with self.subTest(case):
                result = run("inspect", ADAPTERS / case, "--json")
                self.assert_ok(result)
                info = json.loads(result.stdout)
                self.assertTrue(info["modules"])
                self.assertEqual("DoRA" in info["kind"], "dora" in case or case in ("patterns", "old-names"))

    def test_replaced_tensors(self):
        self.assertIn("replaces    lm_head.weight, model.embed_tokens.weight, ",
                      run("inspect", ADAPTERS / "saved").stdout)

    def test_what_is_refused(self):
        for changes, parts in (
            ({"trainable_token_indices": [1, 2]}, ["adapter_config.json: the field trainable_token_indices is [1,2]"]),
            ({"peft_type": "IA3"}, ['peft_type is "IA3"; expected "LORA"']),
            ({"layer_replication": [[0, 1]]}, ["layer_replication is [[0,1]]"]),
            ({"r": 3}, ["is [4, 32] F32; expected [3, 32], as", "gives the rank 3"]),
            ({"target_modules": ["k_proj"]}, ["q_proj has weights of LoRA, but", "does not target it"]),
            ({"target_modules": "(q_proj"}, ["which is no regular expression"]),
        ):
            with self.subTest(changes):
                self.assert_error(run("inspect", self.adapter(config=changes)), 1, *parts)

    def test_damaged_folders(self):
        folder = self.adapter()
        weights = folder / "adapter_model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-4])
        self.assert_error(run("inspect", folder), 1, "adapter_model.safetensors")
        weights.rename(folder / "adapter_model.bin")
        self.assert_error(run("inspect", folder), 1, "PyTorch's own format is not read")
        (folder / "adapter_config.json").write_text("{")
        self.assert_error(run("inspect", folder), 1, "adapter_config.json: not valid JSON")


if __name__ == "__main__":
    unittest.main()
