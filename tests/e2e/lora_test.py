"""quire inspect and quire merge of LoRA adapters, as PEFT writes them."""

import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from gguf_model import read_safetensors, write_safetensors
from support import LEXICON, SOURCE_DIR, CliTest, json_lines, run

ADAPTERS = SOURCE_DIR / "tests" / "golden" / "lora"
MODELS = SOURCE_DIR / "tests" / "golden" / "models"
QUANTISED = SOURCE_DIR / "tests" / "golden" / "quantised" / "awq"


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


class Merge(Folders):
    def merge(self, model, adapter, *arguments, out="out"):
        return run("merge", model, adapter, self.folder / out, *arguments)

    def test_greedy_tokens_are_pefts(self):
        for case in ("dora", "embedding-tied", "fused"):
            golden = json.loads((ADAPTERS / case / "golden.json").read_text())
            self.assert_ok(self.merge(MODELS / golden["base"], ADAPTERS / case, out=case))
            for prompt in golden["prompts"]:
                with self.subTest(case, length=len(prompt["prompt_token_ids"])):
                    result = run("generate", self.folder / case, "--skip-tokenizer-init", "--json", "--ignore-eos",
                                 "--prompt-tokens", ",".join(map(str, prompt["prompt_token_ids"])),
                                 "--temperature", "0", "--max-tokens", len(prompt["output_token_ids"]),
                                 "--dtype", "float32", "--device", "cpu")
                    self.assert_ok(result)
                    self.assertEqual(json_lines(result.stdout)[0]["token_ids"], prompt["output_token_ids"])

    def lexicon_adapter(self, value, **config):
        """Of rank 1 on one layer of the bundled model, whose second matrix holds `value` alone."""
        folder = self.folder / "adapter"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": "model.layers.0.mlp.up_proj"} | config))
        (name, (_, (outputs, inputs), _)), = ((name, tensor) for name, tensor in self.lexicon_tensors().items()
                                              if name == "model.layers.0.mlp.up_proj.weight")
        module = "base_model.model." + name.removesuffix(".weight")
        write_safetensors(folder / "adapter_model.safetensors", {
            module + ".lora_A.weight": ("F32", [1, inputs], struct.pack("<f", 1) * inputs),
            module + ".lora_B.weight": ("F32", [outputs, 1], struct.pack("<f", value) * outputs)})
        return folder

    def lexicon_tensors(self):
        return read_safetensors(LEXICON / "model.safetensors")

    def test_what_is_written(self):
        adapter = self.lexicon_adapter(0.5)
        (adapter / "chat_template.jinja").write_text("{{ messages }}")
        result = self.merge(LEXICON, adapter, "--json", "--threads", "1")
        self.assert_ok(result)
        summary = json.loads(result.stdout)
        self.assertEqual((summary["kind"], summary["merged_tensors"], summary["untied"], summary["left_out"],
                          summary["adapter_left_out"]),
                         ("LoRA", 1, False, ["README.md"], ["chat_template.jinja"]))
        out = self.folder / "out"
        self.assertEqual({path.name for path in out.iterdir()},
                         {path.name for path in LEXICON.iterdir()} - {"README.md"})
        for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual((out / name).read_bytes(), (LEXICON / name).read_bytes())
        self.assertEqual(json.loads((out / "config.json").read_text()),
                         json.loads((LEXICON / "config.json").read_text()))
        before, after = self.lexicon_tensors(), read_safetensors(out / "model.safetensors")
        self.assertEqual(list(before), list(after))
        changed = [name for name in before if before[name] != after[name]]
        self.assertEqual(changed, ["model.layers.0.mlp.up_proj.weight"])
        self.assertEqual(before[changed[0]][:2], after[changed[0]][:2])
        self.assertEqual(summary["bytes"], sum(len(data) for _, _, data in after.values()))

    def test_a_zero_adapter_is_the_base(self):
        result = self.merge(LEXICON, self.lexicon_adapter(0))
        self.assert_ok(result)
        self.assertIn("LoRA: 1 tensor changed", result.stdout)
        self.assertEqual(self.lexicon_tensors(), read_safetensors(self.folder / "out" / "model.safetensors"))

    def test_an_untied_output_layer(self):
        result = self.merge(MODELS / "qwen2-tied", ADAPTERS / "head-tied")
        self.assert_ok(result)
        self.assertIn("untied", result.stdout)
        out = self.folder / "out"
        self.assertIs(json.loads((out / "config.json").read_text())["tie_word_embeddings"], False)
        self.assertIn("lm_head.weight", read_safetensors(out / "model.safetensors"))

    def test_what_does_not_fit_together(self):
        def without_last(tensors):
            return dict(list(tensors.items())[:-2])

        def with_nan(tensors):
            name, (dtype, shape, data) = next(iter(tensors.items()))
            return tensors | {name: (dtype, shape, struct.pack("<f", float("nan")) + data[4:])}

        base = MODELS / "qwen3-tied"
        for model, adapter, parts in (
            (LEXICON, ADAPTERS / "lora", ["q_proj.lora_A.weight is [4, 32] F32; expected [4, ",
                                          "Is it an adapter of another model? Its config names quire/qwen3-tied."]),
            (base, ADAPTERS / "saved", ["is for model.layers.2", "which", "does not have"]),
            (base, self.adapter(tensors=without_last), ["the file lacks the weights of 1 module"]),
        ):
            with self.subTest(parts):
                self.assert_error(self.merge(model, adapter), 1, *parts)
        self.assert_error(self.merge(base, self.adapter(tensors=with_nan)), 1, "holds 1 NaN and 0 infinite of")
        self.assertFalse((self.folder / "out").exists())

    def test_bases_that_are_refused(self):
        self.assert_error(self.merge(QUANTISED, ADAPTERS / "lora"), 1, "the base model is quantised (AWQ",
                          "expected the dense one")
        gguf = self.folder / "model.gguf"
        gguf.write_bytes(b"GGUF")
        self.assert_error(self.merge(gguf, ADAPTERS / "lora"), 1, "cannot be merged into a GGUF file")

    def test_an_adapter_is_no_model(self):
        for command in (["generate", ADAPTERS / "lora", "-p", "x"], ["plan", ADAPTERS / "lora"],
                        ["merge", ADAPTERS / "lora", ADAPTERS / "lora", self.folder / "out"]):
            with self.subTest(command[0]):
                self.assert_error(run(*command), 1, "this folder holds an adapter; expected a model")

    def test_folders_that_are_none(self):
        base = MODELS / "qwen3-tied"
        self.assert_error(self.merge(base, self.folder / "nothing"), 1,
                          "expected an adapter's folder, but there is nothing")
        self.assert_error(self.merge(base, LEXICON), 1, "has no adapter_config.json")
        self.assert_error(self.merge(self.folder / "nothing", ADAPTERS / "lora"), 1, "nothing")
        out = self.folder / "out"
        out.mkdir()
        (out / "mine").write_text("")
        self.assert_error(self.merge(base, ADAPTERS / "lora"), 1, "the folder is not empty, it has mine")
        self.assert_error(run("merge", base, ADAPTERS / "lora"), 2, "OUT")


if __name__ == "__main__":
    unittest.main()
