"""Models in GGUF: every command takes one, and computes what it does with the folder that it was made from."""

import json
import lzma
import pathlib
import random
import struct
import tempfile
import unittest

import gguf_model
from server_support import serving
from support import CPU, LEXICON, SOURCE_DIR, CliTest, generate, json_lines, run

MODELS = SOURCE_DIR / "tests" / "golden" / "models"


class Lexicon(CliTest):
    """The bundled model in its own type, bfloat16, in one file and in two, and in others."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        same = gguf_model.convert(LEXICON)
        cls.same = gguf_model.write(same, cls.folder / "lexicon-BF16.gguf")
        cls.parts = gguf_model.write(same, cls.folder / "parts.gguf", parts=2)
        cls.q8_0 = gguf_model.write(gguf_model.convert(LEXICON, "Q8_0"), cls.folder / "lexicon-Q8_0.gguf")
        cls.f16 = gguf_model.write(gguf_model.convert(LEXICON, "F16"), cls.folder / "lexicon-F16.gguf")

    def texts(self, *arguments):
        result = generate(*arguments, "--max-tokens", "64", env=CPU)
        self.assert_ok(result)
        return [answer["text"] for answer in json_lines(result.stdout)]

    def test_answers_are_those_of_the_folder(self):
        expected = self.texts()
        self.assertEqual(self.texts(self.same), expected)
        self.assertEqual(self.texts(self.parts), expected)
        exact = self.texts("--dtype", "float32")
        self.assertEqual(self.texts(self.f16), exact)
        self.assertEqual(self.texts(self.same, "--dtype", "float32"), exact)

    def test_quantised_weights_answer(self):
        for dtype in ("auto", "float32", "bfloat16"):
            apple, candid, happy = self.texts(self.q8_0, "--dtype", dtype)
            self.assertIn("fruit", apple)
            self.assertTrue(candid and happy)
        self.assertEqual(self.texts(self.q8_0, "--dtype", "float32", "--threads", "1"),
                         self.texts(self.q8_0, "--dtype", "float32"))
        self.assertIn("fruit", self.texts(self.q8_0, "--quantization", "int8")[0])

    def test_ranks_share_blocks(self):
        # Rows of 576 inputs are 18 blocks: three ranks would have 6 each, two have 9.
        self.assertEqual(self.texts(self.q8_0, "--tensor-parallel-size", "2", "--dtype", "float32"),
                         self.texts(self.q8_0, "--dtype", "float32"))

    def test_a_folder_or_a_name_that_means_one(self):
        self.assertEqual(self.texts(f"{self.folder}:BF16"), self.texts(self.same))
        self.assert_error(run("generate", self.folder, "-p", "x"), 1, "there are 4 GGUF models",
                          "lexicon-Q8_0.gguf", ":Q4_K_M")
        self.assert_error(run("generate", f"{self.folder}:Q6_K", "-p", "x"), 1, "ends in Q6_K")

    def test_tokens_are_those_of_the_folder(self):
        lines = "".join(json.dumps(line) + "\n" for line in (
            {"text": "Define apple: it's 12 fruit!<|im_end|>"}, {"token_ids": [5, 900, 8191]},
            {"messages": [{"role": "user", "content": "define apple"}]}))
        expected = run("tokenize", "--json", stdin=lines)
        result = run("tokenize", self.q8_0, "--json", stdin=lines)
        self.assert_ok(result)
        self.assertEqual(result.stdout, expected.stdout)

    def test_inspect_and_plan(self):
        info = json.loads(run("inspect", self.q8_0, "--json").stdout)
        folder = json.loads(run("inspect", "--json").stdout)
        for field in ("architecture", "num_parameters", "vocab_size", "rope", "max_model_len", "eos_token_ids",
                      "tokenizer_vocab_size", "has_chat_template", "tie_word_embeddings"):
            self.assertEqual(info[field], folder[field], field)
        self.assertIn("Q8_0 in 57 tensors", info["quantization"])
        self.assertEqual(len(info["files"]), 1)
        self.assertEqual(len(json.loads(run("inspect", self.parts, "--json").stdout)["files"]), 2)
        self.assertIn({"name": "model.layers.0.self_attn.q_proj.weight", "dtype": "Q8_0", "shape": [256, 256]},
                      [{key: tensor[key] for key in ("name", "dtype", "shape")} for tensor in info["tensors"]])
        self.assertIn("int8 in groups of 32, activations int8 from GGUF Q8_0", run("plan", self.q8_0, env=CPU).stdout)
        plans = [json.loads(run("plan", model, "--json", env=CPU).stdout) for model in (self.same, LEXICON)]
        self.assertEqual(plans[0]["buffers"], plans[1]["buffers"])

    def test_check(self):
        result = run("check", self.q8_0)
        self.assert_ok(result)
        self.assertIn("No problem was found.", result.stdout)

    def test_chat_and_serve(self):
        result = run("chat", self.same, "--temperature", "0", stdin="define apple\n", env=CPU)
        self.assert_ok(result)
        self.assertIn("fruit", result.stdout)
        with serving(self.q8_0, env=CPU) as server:
            status, _, answer = server.chat("define apple")
            self.assertEqual(status, 200)
            self.assertIn("fruit", answer["choices"][0]["message"]["content"])


class Damaged(CliTest):
    """One sentence each, and no crash."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def model(self, change=lambda gguf: None):
        gguf = gguf_model.convert(MODELS / "qwen3-tied")
        change(gguf)
        return gguf_model.write(gguf, self.folder / "m.gguf")

    def assert_refused(self, path, *fragments):
        for command in (("generate", path, "-p", "x"), ("inspect", path), ("plan", path)):
            self.assert_error(run(*command, env=CPU), 1, *fragments)

    def test_bytes(self):
        content = self.model().read_bytes()
        for damaged, fragment in (
            (b"", "does not begin with GGUF"), (content[:3], "does not begin with GGUF"),
            (b"PK" + content, "does not begin with GGUF"), (content[:100], "the file ends within"),
            (content[:-2000], "truncated"),
            (content[:4] + struct.pack(">I", 3) + content[8:], "big-endian"),
            (content[:4] + struct.pack("<I", 1) + content[8:], "version 1"),
            (content[:8] + b"\xff" * 8 + content[16:], "the name of tensor"),
            (content[:16] + b"\xff" * 8 + content[24:], "the name of key"),
        ):
            path = self.folder / "damaged.gguf"
            path.write_bytes(damaged)
            self.assert_refused(path, "damaged.gguf", fragment)
        self.assert_refused(self.folder / "none.gguf", "there is no such file")

    def test_what_is_not_supported(self):
        def architecture(gguf):
            gguf.entries[0] = gguf.text("general.architecture") + struct.pack("<I", 8) + gguf.text("mamba")

        self.assert_refused(self.model(architecture), "general.architecture", "mamba", "supported are llama")
        self.assert_refused(self.model(lambda gguf: gguf.integer("qwen3.expert_count", 8)), "models of experts")
        self.assert_refused(self.model(lambda gguf: gguf.entries.append(gguf.entries[1])), "is given twice")

    def test_tensors(self):
        """Errors name them as the file does."""
        def change(made):
            def change_one(gguf):
                for i, tensor in enumerate(gguf.tensors):
                    if tensor[0] == "blk.0.attn_output.weight":
                        gguf.tensors[i:i + 1] = made(*tensor)
            return self.model(change_one)

        def refuse(path, *fragments):
            self.assert_error(run("generate", path, "--prompt-tokens", "1", env=CPU), 1, *fragments)

        refuse(change(lambda *tensor: []), "m.gguf: The checkpoint's files lack the tensor blk.0.attn_output.weight",
               "of shape [32, 64], which the model that the file's metadata describes needs")
        refuse(change(lambda *tensor: [tensor, ("blk.0.other.weight", *tensor[1:])]),
               "the tensor blk.0.other.weight ([32, 64] F32) is no part of the model")
        infinite = struct.pack("<e32b", float("inf"), *range(32)) * 64
        refuse(change(lambda name, shape, *rest: [(name, shape, "Q8_0", infinite)]),
               "m.gguf: the tensor blk.0.attn_output.weight: a block has a scale that is infinite or no number")
        refuse(change(lambda name, shape, *rest: [(name, shape[::-1], *rest)]),
               "the tensor blk.0.attn_output.weight is [64, 32] F32; the file's metadata makes its shape [32, 64]")


class Tokenizers(CliTest):
    def test_none_is_needed_for_ids(self):
        for kind in ("none", "no_vocab", None):
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as folder:
                gguf = gguf_model.convert(MODELS / "qwen3-tied")
                if kind:
                    gguf.string("tokenizer.ggml.model", kind)
                path = gguf_model.write(gguf, pathlib.Path(folder) / "model.gguf")
                self.assert_ok(run("generate", path, "--prompt-tokens", "1,2,3", "--max-tokens", "2", env=CPU))
                self.assert_error(run("generate", path, "-p", "x", env=CPU), 1, "prompts as token ids")

    def test_sentencepiece(self):
        """Tokens with scores, bytes and control tokens, as Llama 2 has them."""
        golden = SOURCE_DIR / "tests" / "golden" / "tokenizer" / "llama2-style"
        tokenizer = json.loads((golden / "tokenizer.json").read_text())
        cases = json.loads(lzma.open(golden / "cases.json.xz").read())["cases"]
        tokens = {number: (token, 6 if len(token) == 6 and token.startswith("<0x") else 1)
                  for token, number in tokenizer["model"]["vocab"].items()}
        for added in tokenizer["added_tokens"]:
            tokens[added["id"]] = (added["content"], 3 if added["special"] else 4)
        count = len(tokens)
        gguf = gguf_model.Gguf()
        gguf_model.add_config(gguf, {
            "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "max_position_embeddings": 256,
            "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "rms_norm_eps": 1e-5})
        gguf.string("tokenizer.ggml.model", "llama")
        gguf.strings("tokenizer.ggml.tokens", [tokens[number][0] for number in range(count)])
        gguf.integers("tokenizer.ggml.token_type", [tokens[number][1] for number in range(count)])
        gguf.floats("tokenizer.ggml.scores", [-float(number) for number in range(count)])
        for number, name in enumerate(("unknown", "bos", "eos")):
            gguf.integer(f"tokenizer.ggml.{name}_token_id", number)
        gguf.string("tokenizer.chat_template", "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
        gguf.tensors.append(("token_embd.weight", [count, 32], "F16", bytes(2 * 32 * count)))
        with tempfile.TemporaryDirectory() as folder:
            path = gguf_model.write(gguf, pathlib.Path(folder) / "llama.gguf")
            texts = "".join(json.dumps({"text": case[0]}) + "\n" for case in cases)
            result = run("tokenize", path, "--json", stdin=texts)
            self.assert_ok(result)
            answers = [json.loads(line) for line in result.stdout.split("\n") if line]  # texts have other ends of lines
            self.assertEqual([answer["token_ids"] for answer in answers], [case[1] for case in cases])
            chat = json.dumps({"messages": [{"role": "user", "content": "hi"}]}) + "\n"
            self.assertEqual(json.loads(run("tokenize", path, "--json", stdin=chat).stdout)["token_ids"][0], 1)


    def test_a_chat_needs_a_template(self):
        with tempfile.TemporaryDirectory() as folder:
            gguf = gguf_model.convert(LEXICON)
            gguf.entries = [entry for entry in gguf.entries if b"tokenizer.chat_template" not in entry]
            path = gguf_model.write(gguf, pathlib.Path(folder) / "base.gguf")
            self.assert_error(run("generate", path, "--chat", "-p", "x", env=CPU), 1,
                              "base.gguf has no chat template (the key tokenizer.chat_template)")


class Architectures(CliTest):
    """`quire check` finds the log-probabilities of the folder's weights again."""

    def test_answers_are_those_of_the_folder(self):
        names = ("llama3", "llama-bias", "llama-head-dim", "llama-linear", "llama-mha", "llama-yarn",
                 "phi3-longrope-short", "phi3-sliding", "qwen2-tied", "qwen3-tied", "qwen3-yarn")
        with tempfile.TemporaryDirectory() as folder:
            reference = pathlib.Path(folder) / "reference.json"
            for name in names:
                with self.subTest(name=name):
                    self.assert_ok(run("check", MODELS / name, "--write-reference", reference, env=CPU))
                    content = json.loads(reference.read_text())
                    reference.write_text(json.dumps(content | {"tolerance": 1e-4}))
                    path = gguf_model.write(gguf_model.convert(MODELS / name), pathlib.Path(folder) / f"{name}.gguf")
                    self.assert_ok(run("check", path, "--reference", reference, env=CPU))

    def test_blocks_compute_as_the_numbers_that_they_stand_for(self):
        """Bit for bit with float32 activations, for llama too, whose queries' and keys' rows are in another order."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            arguments = ("--prompt-tokens", "1,2,3", "--json", "--logprobs", "2", "--max-tokens", "8", "--dtype", "float32")
            for model in ("llama3", "qwen3-tied", "phi3-sliding"):
                for kind in ("Q8_0", "Q4_0"):
                    with self.subTest(model=model, kind=kind):
                        blocks = gguf_model.convert(MODELS / model, kind)
                        floats = gguf_model.write(gguf_model.dequantised(blocks), folder / "floats.gguf")
                        path = gguf_model.write(blocks, folder / "blocks.gguf")
                        self.assertIn(f"from GGUF {kind}", run("plan", path, env=CPU).stdout)
                        results = [run("generate", file, *arguments, env=CPU) for file in (floats, path)]
                        self.assert_ok(results[1])
                        self.assertEqual(results[1].stdout, results[0].stdout)

    def test_k_quants_compute_as_the_numbers_that_they_stand_for(self):
        """Made-up blocks in two layers of the bundled model's shape, whose rows are whole blocks of 256."""
        config = json.loads((LEXICON / "config.json").read_text()) | {"num_hidden_layers": 2}
        dense = gguf_model.Gguf()
        gguf_model.add_config(dense, config)
        dense.string("tokenizer.ggml.model", "none")
        gguf_model.add_weights(dense, LEXICON, config, None)
        kept = [tensor for tensor in dense.tensors if tensor[0].startswith(("blk.0.", "blk.1.", "token_embd", "output"))]
        arguments = ("--prompt-tokens", "1,2,3", "--json", "--logprobs", "2", "--max-tokens", "8", "--dtype", "float32")
        for kind in gguf_model.K_TYPES:
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as name:
                folder, generator = pathlib.Path(name), random.Random(kind)
                dense.tensors = [
                    (tensor, shape, kind, gguf_model.random_blocks(kind, shape[0] * shape[1] // 256, generator))
                    if tensor.startswith("blk.") and len(shape) == 2 and shape[1] % 256 == 0
                    else (tensor, shape, stored, data) for tensor, shape, stored, data in kept]
                path = gguf_model.write(dense, folder / "blocks.gguf")
                floats = gguf_model.write(gguf_model.dequantised(dense), folder / "floats.gguf")
                self.assertIn(f"GGUF {kind}", run("plan", path, env=CPU).stdout)
                results = [run("generate", file, *arguments, env=CPU) for file in (floats, path)]
                self.assert_ok(results[1])
                self.assertEqual(results[1].stdout, results[0].stdout)


if __name__ == "__main__":
    unittest.main()
