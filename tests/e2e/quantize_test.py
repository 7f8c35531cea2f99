"""quire quantize and quire perplexity: folders that are written, read back and run; errors; figures."""

import array
import json
import math
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import gguf_model
from gguf_model import read_safetensors, write_safetensors
from support import BINARY, LEXICON, SOURCE_DIR, CliTest, json_lines, model_copy, run

QUESTION = ("-p", "define apple", "--chat", "--temperature", "0", "--max-tokens", "10")
GOLDEN = SOURCE_DIR / "tests" / "golden" / "quantised"
MODELS = SOURCE_DIR / "tests" / "golden" / "models"
TEXT = "".join(
    f"<|im_start|>user\nwhat does {word} mean?<|im_end|>\n<|im_start|>assistant\n{word} (noun): {meaning}.<|im_end|>\n"
    for word, meaning in (("apple", "fruit with red or yellow or green skin"), ("pear", "sweet juicy gritty-textured fruit"),
                          ("river", "a large natural stream of water"), ("chair", "a seat for one person"))
)


def write_with_62_of_128(source, path):
    """ct-pack-mixed with 62 numbers between gate and down instead of 128."""
    tensors = {}
    for name, (dtype, shape, data) in read_safetensors(source).items():
        kept = {128: 62, 16: 8, 32: 16}  # outputs; their words of zero points; words of inputs of 8 bits
        if ".mlp.down_proj.weight_packed" in name:
            width = len(data) // shape[0]
            data = b"".join(data[row * width : row * width + width // 2] for row in range(shape[0]))
            shape = [shape[0], kept[shape[1]]]
        elif name.endswith("weight_shape") and ".mlp." in name:
            data = struct.pack("<2q", *(kept.get(extent, extent) for extent in struct.unpack("<2q", data)))
        elif ".mlp." in name and shape[0] in kept:
            data = data[: len(data) // shape[0] * kept[shape[0]]]
            shape = [kept[shape[0]], *shape[1:]]
        tensors[name] = (dtype, shape, data)
    write_safetensors(path, tensors)


def times_power_of_two(data, power):
    """Numbers in bfloat16, all of them normal, times 2 to that power; zeros stay."""
    values = array.array("H", data)
    return array.array("H", [value + (power << 7) if value & 0x7F80 else value for value in values]).tobytes()


class Folders(CliTest):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)

    def quantize(self, *arguments, model=LEXICON, out="out"):
        result = run("quantize", model, self.folder / out, "--json", *arguments)
        self.assert_ok(result)
        return json.loads(result.stdout)

    def assert_same_tokens(self, *models):
        tokens = ["--skip-tokenizer-init", "--prompt-tokens", "5,17,60,2", "--max-tokens", "8", "--temperature", "0",
                  "--json", "--dtype", "float32", "--device", "cpu"]
        first, second = (run("generate", model, *tokens) for model in models)
        self.assert_ok(first)
        self.assert_ok(second)
        self.assertEqual(json_lines(first.stdout)[0]["token_ids"][0], json_lines(second.stdout)[0]["token_ids"][0])

    def answer(self, model):
        result = run("generate", model, *QUESTION, "--device", "cpu")
        self.assert_ok(result)
        return result.stdout


class Quantize(Folders):
    def test_every_scheme_is_read_back(self):
        expected = self.answer(LEXICON)
        for name, arguments, described in (
            ("int8", ["--scheme", "int8"], "8 bits, groups of 32"),
            ("int4", ["--scheme", "int4"], "4 bits, groups of 32, zero points"),
            ("symmetric", ["--scheme", "int4", "--symmetric"], "4 bits, groups of 32"),
            ("calibrated", ["--calibrate", self.text], "4 bits, groups of 32, zero points"),
            ("fp8", ["--scheme", "fp8"], "float8 e4m3, a scale for each output"),
        ):
            with self.subTest(name=name):
                summary = self.quantize(*arguments, out=name)
                self.assertEqual((summary["quantized_layers"], summary["kept_layers"]), (56, []))
                self.assertLess(summary["bytes_after"], 0.7 * summary["bytes_before"])
                self.assertEqual(self.answer(self.folder / name), expected)
                inspected = run("inspect", self.folder / name)
                self.assertIn(described + "; 56 of 56 layers", inspected.stdout)

    def test_what_is_beside_the_weights(self):
        self.quantize()
        out = self.folder / "out"
        self.assertEqual({path.name for path in out.iterdir()},
                         {path.name for path in LEXICON.iterdir()} - {"README.md"})
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual((out / name).read_bytes(), (LEXICON / name).read_bytes())
        config = json.loads((out / "config.json").read_text())
        quantization = config.pop("quantization_config")
        self.assertEqual(config, json.loads((LEXICON / "config.json").read_text()))
        self.assertEqual((quantization["quant_method"], quantization["format"]),
                         ("compressed-tensors", "pack-quantized"))
        self.assertEqual(quantization["ignore"], ["lm_head"])

    def test_scales_of_the_kv_cache_stay(self):
        scaled = self.folder / "scaled"
        scaled.mkdir()
        for path in LEXICON.iterdir():
            if path.name != "model.safetensors":
                (scaled / path.name).symlink_to(path)
        scale = struct.pack("<f", 0.125)
        kept = {f"model.layers.{layer}.self_attn.{name}": ("F32", [1], scale)
                for layer in range(8) for name in ("k_scale", "v_proj.output_scale")}
        write_safetensors(scaled / "model.safetensors",
                          {**read_safetensors(LEXICON / "model.safetensors"), **kept,
                           "model.layers.0.self_attn.q_scale": ("F32", [1], scale)})
        self.quantize(model=scaled)
        made = read_safetensors(self.folder / "out" / "model.safetensors")
        self.assertEqual({name: tensor for name, tensor in made.items() if "scale" in name.split("self_attn.")[-1]
                          and "weight_scale" not in name},
                         kept)
        expected = self.answer(LEXICON)
        for arguments in ((), ("--kv-cache-dtype", "fp8_e5m2")):
            self.assert_ok(run("generate", scaled, "-p", "define apple", "--max-tokens", 4, *arguments))
        self.assertEqual(self.answer(scaled), expected)

    # A model whose values are too large for float8 answers like one whose values are not.
    def test_scales_of_the_kv_cache_are_measured(self):
        large = self.folder / "large"
        large.mkdir()
        for path in LEXICON.iterdir():
            if path.name != "model.safetensors":
                (large / path.name).symlink_to(path)
        tensors = read_safetensors(LEXICON / "model.safetensors")
        for name, (dtype, shape, data) in tensors.items():
            if ".v_proj." in name:
                tensors[name] = (dtype, shape, times_power_of_two(data, 12))
            elif ".o_proj." in name:
                tensors[name] = (dtype, shape, times_power_of_two(data, -12))
        write_safetensors(large / "model.safetensors", tensors)
        for scheme in ("fp8", "int4"):
            scales = {}
            for name, model in (("usual", LEXICON), ("larger", large)):
                self.quantize("--scheme", scheme, "--calibrate", self.text, "--kv-scales", model=model, out=scheme + name)
                made = read_safetensors(self.folder / (scheme + name) / "model.safetensors")
                scales[name] = {name: struct.unpack("<f", data)[0] for name, (dtype, shape, data) in made.items()
                                if name.endswith((".k_scale", ".v_scale")) and (dtype, shape) == ("F32", [1])}
            self.assertEqual(len(scales["usual"]), 16)
            for name, scale in scales["usual"].items():
                self.assertGreater(scale, 0)
                self.assertEqual(scales["larger"][name], scale * (4096 if "v_scale" in name else 1), name)
            answers = [run("generate", self.folder / (scheme + name), *QUESTION, "--device", "cpu", "--kv-cache-dtype", "fp8")
                       for name in ("usual", "larger")]
            self.assert_ok(answers[0])
            self.assertIn("fruit", answers[0].stdout)
            self.assertEqual(answers[1].stdout, answers[0].stdout)
        config = json.loads((self.folder / "fp8usual" / "config.json").read_text())
        self.assertEqual(config["quantization_config"]["kv_cache_scheme"],
                         {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False})

    def test_layers_that_a_group_does_not_divide_stay(self):
        summary = self.quantize("--group-size", "128")  # of 576 inputs
        self.assertEqual(summary["quantized_layers"], 48)
        self.assertEqual(summary["kept_layers"][0], "model.layers.0.mlp.down_proj")
        self.assertIn("48 of 56 layers", run("inspect", self.folder / "out").stdout)

    def test_files_that_are_links_and_what_is_left_out(self):
        model = self.folder / "model"
        model.mkdir()
        for path in LEXICON.iterdir():
            (model / path.name).symlink_to(path)
        stored = self.folder / "stored.jinja"
        stored.write_text("{{ messages[0].content }}")
        templates = model / "additional_chat_templates"
        templates.mkdir()
        (templates / "tool_use.jinja").symlink_to(stored)
        for name in ("quantize_config.json", "recipe.yaml", "pytorch_model.bin", ".gitattributes"):
            (model / name).write_text("{}")
        (model / "onnx").mkdir()
        summary = self.quantize(model=model)
        self.assertEqual(summary["left_out"],
                         ["README.md", "onnx/", "pytorch_model.bin", "quantize_config.json", "recipe.yaml"])
        out = self.folder / "out"
        self.assertEqual({path.name for path in out.iterdir()},
                         {path.name for path in LEXICON.iterdir()} - {"README.md"} | {templates.name})
        self.assertFalse([path for path in out.rglob("*") if path.is_symlink()])
        self.assertEqual((out / templates.name / "tool_use.jinja").read_bytes(), stored.read_bytes())
        self.assertIn("left out", run("quantize", model, self.folder / "other").stdout)
        (model / "merges.txt").symlink_to(self.folder / "nowhere")
        self.assert_error(run("quantize", model, self.folder / "third"), 1, "merges.txt", "a link to nothing")

    # Each published format is dequantised and rounded anew; fused layers too, and an output layer of 8 bits.
    def test_models_that_are_quantised_already(self):
        for case in ("gptq-act-order", "awq", "gptq-fused", "ct-int8", "ct-float8", "fp8-block"):
            with self.subTest(case):
                self.quantize("--scheme", "int8", model=GOLDEN / case, out=case)
                self.assert_same_tokens(GOLDEN / case, self.folder / case)

    # Of a tied model it is the embedding, too.
    def test_output_layer(self):
        expected = self.answer(LEXICON)
        for bits in ("int8", "int4"):
            with self.subTest(bits):
                summary = self.quantize("--output-layer", bits, out=bits)
                self.assertEqual((summary["quantized_layers"], summary["kept_layers"]), (57, []))
                self.assertIn(f"{bits[-1]} bits, groups of 32", summary["output_scheme"])
                self.assertEqual(self.answer(self.folder / bits), expected)
                tensors = read_safetensors(self.folder / bits / "model.safetensors")
                self.assertNotIn("model.embed_tokens.weight", tensors)
                self.assertIn("model.embed_tokens.weight_packed", tensors)
        self.assertIsNone(self.quantize(out="keep")["output_scheme"])
        model = MODELS / "llama3"  # which has one of its own
        summaries = [self.quantize("--scheme", "int8", "--output-layer", bits, model=model, out="llama3-" + bits)
                     for bits in ("keep", "int8")]
        self.assertEqual(summaries[1]["quantized_layers"], summaries[0]["quantized_layers"] + 1)
        self.assertEqual(summaries[1]["kept_layers"] + ["lm_head"], summaries[0]["kept_layers"])
        config = json.loads((self.folder / "llama3-int8" / "config.json").read_text())["quantization_config"]
        self.assertEqual(config["ignore"], summaries[1]["kept_layers"])
        self.assertEqual(config["config_groups"]["group_1"]["targets"], ["lm_head"])
        self.assertIn("model.embed_tokens.weight", read_safetensors(self.folder / "llama3-int8" / "model.safetensors"))
        self.assert_same_tokens(model, self.folder / "llama3-int8")
        self.assert_error(run("quantize", LEXICON, self.folder / "o", "--scheme", "fp8", "--output-layer", "int8"), 2,
                          "--output-layer")

    # The same numbers come out of a folder and of the GGUF file that was made from it.
    def test_gguf_files(self):
        file = gguf_model.write(gguf_model.convert(LEXICON), self.folder / "lexicon.gguf", parts=2)
        self.quantize(out="folder")
        summary = self.quantize(model=file, out="file")
        self.assertEqual((summary["quantized_layers"], summary["left_out"]), (56, []))
        weights = [read_safetensors(self.folder / name / "model.safetensors") for name in ("folder", "file")]
        self.assertEqual(weights[0].keys(), weights[1].keys())
        for name, (dtype, shape, data) in weights[0].items():
            if dtype != "BF16" or len(shape) > 1:  # vectors are F32 in the file
                self.assertEqual(weights[1][name], (dtype, shape, data), name)
        self.assertEqual(self.answer(self.folder / "file"), self.answer(self.folder / "folder"))
        lines = json.dumps({"text": "Define apple: it's 12 fruit!<|im_end|>"}) + "\n" + json.dumps(
            {"messages": [{"role": "user", "content": "define apple"}]})
        tokens = [run("tokenize", self.folder / name, "--json", stdin=lines).stdout for name in ("folder", "file")]
        self.assertTrue(tokens[0])
        self.assertEqual(*tokens)
        calibrated = self.quantize("--calibrate", self.text, model=file, out="calibrated")
        self.assertGreater(calibrated["calibration_tokens"], 0)
        self.assertEqual(self.answer(self.folder / "calibrated"), self.answer(LEXICON))

    # Each architecture, with the RoPE that the file has as factors and with queries and keys in their order; and
    # blocks, which are dequantised: 8 bits have room for those of Q8_0.
    def test_gguf_architectures_and_blocks(self):
        for name in ("llama3", "llama-bias", "llama-linear", "llama-yarn", "phi3-longrope-short", "phi3-sliding",
                     "qwen2-tied", "qwen3-tied", "qwen3-yarn"):
            with self.subTest(name):
                file = gguf_model.write(gguf_model.convert(MODELS / name), self.folder / f"{name}.gguf")
                self.quantize("--scheme", "int8", model=MODELS / name, out=name + ".folder")
                self.quantize("--scheme", "int8", model=file, out=name + ".file")
                self.assert_same_tokens(self.folder / f"{name}.folder", self.folder / f"{name}.file")
        file = gguf_model.write(gguf_model.convert(LEXICON, "Q8_0"), self.folder / "lexicon-Q8_0.gguf")
        for option in ("keep", "int8"):
            summary = self.quantize("--scheme", "int8", "--output-layer", option, model=file, out=option)
            self.assertLess(summary["relative_error"], 0.003)
            self.assertEqual(self.answer(self.folder / option), self.answer(LEXICON))

    def test_error_of_outputs(self):
        nearest = self.quantize(out="nearest")
        calibrated = self.quantize("--calibrate", self.text, out="calibrated")
        self.assertIsNone(nearest["relative_output_error"])
        self.assertLess(calibrated["relative_output_error"], 0.6 * nearest["relative_error"])
        self.assertIn("% of the layers' outputs for the calibration text",
                      run("quantize", LEXICON, self.folder / "t", "--calibrate", self.text).stdout)

    # compressed-tensors fills the last word of a row, or of a column of zero points.
    def test_packed_matrices_that_end_within_a_word(self):
        model = self.folder / "model"
        model.mkdir()
        config = json.loads((GOLDEN / "ct-pack-mixed" / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 62}))
        write_with_62_of_128(GOLDEN / "ct-pack-mixed" / "model.safetensors", model / "model.safetensors")
        for scheme, layers in (("fp8", 14), ("int8", 12)):
            with self.subTest(scheme):
                self.assertEqual(self.quantize("--scheme", scheme, model=model, out=scheme)["quantized_layers"], layers)
                self.assert_same_tokens(model, self.folder / scheme)
                tensors = read_safetensors(self.folder / scheme / "model.safetensors")
                self.assertEqual(tensors["model.layers.0.mlp.gate_proj.weight_scale"][0], "BF16")  # float16: too narrow
                self.assertEqual(tensors["model.layers.1.mlp.down_proj.weight"][1], [64, 62])

    def test_output_that_is_there(self):
        out = self.folder / "out"
        out.mkdir()
        out.chmod(0o705)
        inode = out.stat().st_ino
        self.quantize()  # an empty one is filled, as it may be a mount point
        self.assertEqual((out.stat().st_ino, out.stat().st_mode & 0o777), (inode, 0o705))
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        self.assert_error(run("quantize", LEXICON, out), 1, "is not empty")
        self.assert_error(run("quantize", LEXICON, self.text), 1, "this is a file")
        self.assertEqual({path.name: path.read_bytes() for path in out.iterdir()}, before)
        self.assert_error(run("quantize", LEXICON, self.folder / "a" / "b"), 1, "cannot be written")
        self.assert_error(run("quantize", LEXICON, ""), 1, "has no name")
        (self.folder / "link").symlink_to(self.folder / "nowhere")
        self.assert_error(run("quantize", LEXICON, self.folder / "link"), 1, "a link to nothing")

    def test_nothing_is_left_of_what_fails(self):
        weights = bytearray((LEXICON / "model.safetensors").read_bytes())
        header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
        begin = header["model.layers.7.mlp.down_proj.weight"]["data_offsets"][0]
        at = 8 + int.from_bytes(weights[:8], "little") + begin
        weights[at : at + 2] = b"\xc0\x7f"  # NaN
        with model_copy(model__safetensors=bytes(weights)) as damaged:
            self.assert_error(run("quantize", damaged, self.folder / "out"), 1, "down_proj", "nan")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_signals_leave_nothing(self):
        self.text.write_text(TEXT * 200)
        out = self.folder / "out"
        for number, code, is_there in ((signal.SIGINT, 130, False), (signal.SIGTERM, 143, True), (signal.SIGHUP, 129, True)):
            with self.subTest(signal=number):
                if is_there:
                    out.mkdir(exist_ok=True)
                process = self.start_to_quantize(number)
                while not list(self.folder.rglob("*.partial")) and process.poll() is None:
                    time.sleep(0.01)
                process.send_signal(number)
                _, errors = process.communicate(timeout=120)
                self.assertEqual(process.returncode, code, errors)
                self.assertIn(b"interrupted; nothing is left", errors)
                self.assertEqual({path.name for path in self.folder.rglob("*")},
                                 {"text.txt", "out"} if is_there else {"text.txt"})

    def start_to_quantize(self, number):
        command = [BINARY, "quantize", LEXICON, self.folder / "out", "--calibrate", self.text]
        # What runs the tests may ignore the signal, as nohup does.
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                                preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))

    def test_texts_by_the_line(self):
        for form in ("texts.jsonl", "texts.txt"):
            texts = self.folder / form
            lines = ["an apple is red", "", "a river"] * 20
            texts.write_text("\n".join(json.dumps({"text": line}) for line in lines) if form.endswith("l") else TEXT)
            with self.subTest(form):
                summary = self.quantize("--calibrate", texts, "--calibration-tokens", "100", out=form + ".out")
                self.assertEqual(summary["calibration_tokens"], 100)
                self.assertEqual(self.answer(self.folder / (form + ".out")), self.answer(LEXICON))
        texts.with_suffix(".jsonl").write_text('{"text": "one"}\n["two"]\n')
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--calibrate", texts.with_suffix(".jsonl")), 1,
                          "texts.jsonl, line 2", "object")

    def test_wrong_usage(self):
        self.assert_error(run("quantize", LEXICON), 2, "OUT")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--scheme", "int3"), 2, "int3")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--scheme", "fp8", "--symmetric"), 2,
                          "--symmetric")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--group-size", "48"), 2, "48")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--kv-scales"), 2, "--kv-scales: goes with --calibrate")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--scheme", "fp8", "--calibrate", self.text), 2,
                          "--calibrate: goes with int8, int4 and --kv-scales")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--calibrate", self.folder / "no.txt"), 1,
                          "no.txt")


class Perplexity(Folders):
    def measure(self, *arguments):
        result = run("perplexity", LEXICON, "--file", self.text, "--json", "--device", "cpu", *arguments)
        self.assert_ok(result)
        return json.loads(result.stdout)

    # The log-probabilities that generate reports, window by window.
    def expected(self, context, stride):
        ids = json.loads(run("tokenize", LEXICON, "--json", stdin=json.dumps({"text": TEXT})).stdout)["token_ids"]
        logprobs, scored = [], 1
        for begin in range(0, len(ids), stride):
            if scored >= len(ids):
                break
            window = ids[begin : begin + context]
            result = run("generate", LEXICON, "--prompt-tokens", ",".join(map(str, window)), "--max-tokens", "1",
                         "--prompt-logprobs", "0", "--json", "--temperature", "0", "--device", "cpu")
            self.assert_ok(result)
            found = json_lines(result.stdout)[0]["prompt_logprobs"]
            logprobs += [position[0]["logprob"] for position in found[scored - begin :]]
            scored = begin + len(window)
        return ids, logprobs

    def test_figures_are_those_of_the_log_probabilities(self):
        for context, stride in ((64, 32), (48, 47), (1000, 500)):
            with self.subTest(context=context, stride=stride):
                ids, logprobs = self.expected(context, stride)
                figures = self.measure("--context", str(context), "--stride", str(stride))
                self.assertEqual((figures["tokens"], figures["scored_tokens"]), (len(ids), len(ids) - 1))
                self.assertEqual(len(logprobs), len(ids) - 1)
                mean = sum(logprobs) / len(logprobs)
                variance = sum((value - mean) ** 2 for value in logprobs) / (len(logprobs) - 1)
                self.assertAlmostEqual(figures["mean_logprob"], mean, places=5)
                self.assertAlmostEqual(figures["perplexity"] / math.exp(-mean), 1, places=4)
                error = math.exp(-mean) * math.sqrt(variance / len(logprobs))
                self.assertAlmostEqual(figures["standard_error"] / error, 1, places=4)

    # Windows do not reach from one text into the next.
    def test_texts_by_the_line(self):
        texts = TEXT.split("<|im_end|>\n<|im_start|>user") + ["a", ""]
        total, scored = 0.0, 0
        for text in texts[:-2]:
            self.text.write_text(text)
            figures = self.measure("--context", "32")
            total += figures["mean_logprob"] * figures["scored_tokens"]
            scored += figures["scored_tokens"]
        self.text = self.folder / "texts.jsonl"
        self.text.write_text("\n".join(json.dumps({"text": text}) for text in texts))
        figures = self.measure("--context", "32")
        self.assertEqual((figures["texts"], figures["scored_tokens"]), (len(texts), scored))
        self.assertAlmostEqual(figures["mean_logprob"], total / scored, places=5)

    # The engine is given the windows of a few steps at a time.
    def test_figures_do_not_depend_on_steps(self):
        sizes = ["--context", "16", "--stride", "9"]
        self.assertEqual(self.measure(*sizes, "--max-num-batched-tokens", "16"), self.measure(*sizes))

    def test_defaults(self):
        figures = self.measure()
        self.assertEqual((figures["context"], figures["stride"]), (1024, 512))
        text = run("perplexity", LEXICON, "--file", self.text, "--device", "cpu").stdout
        self.assertIn(f"perplexity {figures['perplexity']:.4f} +- {figures['standard_error']:.4f}", text)

    def test_wrong_usage(self):
        self.assert_error(run("perplexity", LEXICON), 2, "--file")
        self.assert_error(run("perplexity", LEXICON, "--file", "/nowhere.txt"), 1, "/nowhere.txt")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "1"), 2,
                          "--context: expected 2 or more, got 1")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--stride", "0"), 2,
                          "--stride: expected 1 or more, got 0")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "9999"), 1, "expected 2 to 2047")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "8", "--stride", "8"), 1,
                          "expected 1 to 7")
        self.text.write_text("")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text), 1, "expected 2 or more")


if __name__ == "__main__":
    unittest.main()
