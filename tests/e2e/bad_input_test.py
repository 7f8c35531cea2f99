"""What is wrong with a model's files or a request gets one clear line, never a crash."""

import json
import pathlib
import struct
import tempfile
import unittest

from support import LEXICON, CliTest, lexicon_config, model_copy, run

PROMPT = ["-p", "define apple", "--max-tokens", "2"]


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class BadModel(CliTest):
    def refuses(self, folder, *fragments):
        self.assert_error(run("generate", folder, *PROMPT), 1, *fragments)

    def test_no_model(self):
        self.refuses("/nowhere/model", "/nowhere/model")
        self.refuses(LEXICON / "config.json", "config.json")
        with tempfile.TemporaryDirectory() as folder:
            self.refuses(folder, "config.json")

    def test_configs(self):
        cases = [
            ("{", "config.json"),
            ("[]", "config.json"),
            ("[" * 100000, "config.json"),
            (b"\xff\xfe", "config.json"),
            (lexicon_config(architectures=None), "architectures"),
            (lexicon_config(architectures=["GPT5"]), "GPT5"),
            (lexicon_config(hidden_act="relu6"), "hidden_act"),
            (lexicon_config(hidden_size=None), "hidden_size"),
            (lexicon_config(hidden_size=-256), "hidden_size"),
            (lexicon_config(hidden_size="256"), "hidden_size"),
            (lexicon_config(hidden_size=10**18), "hidden_size"),
            (lexicon_config(num_hidden_layers=10**9), "num_hidden_layers"),
            (lexicon_config(num_key_value_heads=3), "num_key_value_heads"),
            (lexicon_config(vocab_size=0), "vocab_size"),
            (lexicon_config(rope_scaling={"rope_type": "spiral", "factor": 2.0}), "spiral"),
            (lexicon_config(rope_theta=-1.0), "rope_theta"),
            (lexicon_config(max_position_embeddings=0), "max_position_embeddings"),
        ]
        for config, fragment in cases:
            with self.subTest(config=config[:80], fragment=fragment), model_copy(config__json=config) as folder:
                self.refuses(folder, fragment)

    def test_weights(self):
        whole = (LEXICON / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8 : 8 + size])
        data = whole[8 + size :]
        name = "model.norm.weight"

        def changed(**fields):
            return safetensors({**header, name: {**header[name], **fields}}, data)

        missing = {key: value for key, value in header.items() if key != name}
        begin, end = header[name]["data_offsets"]
        cases = [
            (b"", "model.safetensors"),
            (b"\0" * 7, "model.safetensors"),
            (whole[: len(whole) // 2], "model.safetensors"),
            (struct.pack("<Q", 2**63), "model.safetensors"),
            (struct.pack("<Q", 10**6) + b"{}", "model.safetensors"),
            (safetensors(b"{" * 1000), "model.safetensors"),
            (safetensors(missing, data), "belong to no tensor"),
            (safetensors({**missing, "other": header[name]}, data), "the tensor other"),
            (changed(shape=[255]), name),
            (changed(shape=[2**62, 2**62]), name),
            (changed(shape=[-256]), name),
            (changed(dtype="F13"), "F13"),
            (changed(data_offsets=[begin, end + 2**40]), name),
            (changed(data_offsets=[end, begin]), name),
            (changed(data_offsets=[0, end - begin]), "model.safetensors"),
        ]
        for index, (content, fragment) in enumerate(cases):
            with self.subTest(case=index, fragment=fragment), model_copy(model__safetensors=content) as folder:
                self.refuses(folder, fragment)

    def test_inspect_counts_a_tensor_without_elements_as_none(self):
        whole = (LEXICON / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8 : 8 + size])
        begin = min(entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__")
        header["huge"] = {"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [begin, begin]}
        with model_copy(model__safetensors=safetensors(header, whole[8 + size :])) as folder:
            result = run("inspect", folder, "--json")
            self.assert_ok(result)
            expected = json.loads(run("inspect", "--json").stdout)
            self.assertEqual(json.loads(result.stdout)["num_parameters"], expected["num_parameters"])

    def test_sampling_defaults(self):
        for field, value in (("temperature", 1000), ("top_p", 0), ("repetition_penalty", 11)):
            with self.subTest(field=field), model_copy(generation_config__json=json.dumps({field: value})) as folder:
                self.refuses(folder, "generation_config.json", field)

    def test_shards(self):
        index = json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})
        with model_copy(without=("model.safetensors",)) as folder:
            self.refuses(folder, "safetensors")
            (folder / "model.safetensors.index.json").write_text(index)
            self.refuses(folder, "model-00001-of-00002.safetensors")
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
            self.refuses(folder, "model.safetensors.index.json")

    def test_tokenizers(self):
        cases = ["{", "[]", "{}", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
                 '{"model": {"type": "Unigram"}}', "[" * 100000]
        for content in cases:
            with self.subTest(content=content[:60]), model_copy(tokenizer__json=content) as folder:
                self.refuses(folder, "tokenizer.json")

    def test_templates(self):
        cases = ["{% for %}", "{{ x", "{% include 'x' %}", "{{ messages | nofilter }}", "{{ " + "(" * 100000,
                 "{% for i in range(1000000000) %}{{ i }}{% endfor %}", "{{ 'a' * 10000000000 }}",
                 "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ raise_exception('no') }}"]
        for content in cases:
            with self.subTest(content=content[:60]), model_copy(chat_template__jinja=content) as folder:
                self.assert_error(run("generate", folder, "--chat", *PROMPT), 1)


class BadRequest(CliTest):
    def test_prompts(self):
        cases = [
            (["-p", ""], "prompt 0"),
            (["-p", "fine", "-p", ""], "prompt 1"),
            (["-p", "word " * 5000], "max_model_len"),
            (["--prompt-tokens", "8192"], "8192"),
            (["-p", "x", "--stop-token-ids", "99999"], "99999"),
            (["-p", "x", "--logit-bias", "99999:1"], "99999"),
            (["-p", "x", "--max-model-len", "100000"], "--max-model-len"),
            (["-p", "x", "--tensor-parallel-size", "3"], "parallel"),
            (["-p", "x", "--kv-cache-memory-bytes", "1"], "--kv-cache-memory-bytes"),
            (["--skip-tokenizer-init", "-p", "x"], "tokenizer"),
        ]
        for arguments, fragment in cases:
            with self.subTest(arguments=[argument[:40] for argument in arguments]):
                self.assert_error(run("generate", *arguments), 1, fragment)

    def test_invalid_utf8(self):
        self.assert_error(run("generate", stdin=b"fine\n\xc3\x28\n"), 1, "standard input line 2", "UTF-8")

    def test_prompt_files(self):
        self.assert_error(run("generate", "--prompt-file", "/nowhere/p.jsonl"), 1, "/nowhere/p.jsonl")
        cases = [
            (b"", "holds no prompt"),
            (b"\n \n", "holds no prompt"),
            (b'\n{"prompt": 5}\n', "line 2"),
            (b"{}\n", "line 1: there is no prompt"),
            (b'{"prompt": "a"}\n{"prompt": "b", "temprature": 1}\n',
             "line 2: unknown field temprature; did you mean temperature?"),
            (b'{"prompt": "a", "top_p": "x"}\n', "line 1: top_p: expected a number, got a string"),
            (b'{"prompt": "a", "top_p": 7}\n', "line 1"),
            (b'{"prompt": "\xff"}\n', "line 1: not valid JSON"),
            (b'{"prompt": ' + b"[" * 100000, "nested deeper"),
            (b'{"messages": [{"role": 5}]}\n', "line 1"),
            (b'{"prompt_token_ids": []}\n', "line 1"),
        ]
        for content, fragment in cases:
            with self.subTest(content=content[:60]), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "prompts.jsonl"
                file.write_bytes(content)
                self.assert_error(run("generate", "--prompt-file", file), 1, "prompts.jsonl", fragment)

    def test_names_that_are_too_long(self):
        for arguments in (["a" * 5000, *PROMPT], ["/" + "a" * 300, *PROMPT], ["--prompt-file", "a" * 5000]):
            with self.subTest(arguments=[argument[:20] for argument in arguments]):
                result = run("generate", *arguments)
                self.assert_error(result, 1, "aaa")
                self.assertNotIn("filesystem error", result.stderr)
                self.assertLess(len(result.stderr), 400)

    def test_a_full_disk(self):
        import subprocess
        from support import BINARY

        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, "generate", *PROMPT], stdin=subprocess.DEVNULL, stdout=full,
                                    stderr=subprocess.PIPE, encoding="utf-8")
        self.assert_error(result, 1, "standard output")


if __name__ == "__main__":
    unittest.main()
