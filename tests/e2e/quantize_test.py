"""quire quantize and quire perplexity: folders that are written, read back and run; errors; figures."""

import json
import math
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from support import BINARY, LEXICON, SOURCE_DIR, CliTest, json_lines, model_copy, run

QUESTION = ("-p", "define apple", "--chat", "--temperature", "0", "--max-tokens", "10")
GOLDEN = SOURCE_DIR / "tests" / "golden" / "quantised"
TEXT = "".join(
    f"<|im_start|>user\nwhat does {word} mean?<|im_end|>\n<|im_start|>assistant\n{word} (noun): {meaning}.<|im_end|>\n"
    for word, meaning in (("apple", "fruit with red or yellow or green skin"), ("pear", "sweet juicy gritty-textured fruit"),
                          ("river", "a large natural stream of water"), ("chair", "a seat for one person"))
)


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

    def test_layers_that_a_group_does_not_divide_stay(self):
        summary = self.quantize("--group-size", "128")  # of 576 inputs
        self.assertEqual(summary["quantized_layers"], 48)
        self.assertEqual(summary["kept_layers"][0], "model.layers.0.mlp.down_proj")
        self.assertIn("48 of 56 layers", run("inspect", self.folder / "out").stdout)

    # Each published format is dequantised and rounded anew; fused layers too, and an output layer of 8 bits.
    def test_models_that_are_quantised_already(self):
        for case in ("gptq-act-order", "awq", "gptq-fused", "ct-int8", "ct-float8", "fp8-block"):
            with self.subTest(case):
                self.quantize("--scheme", "int8", model=GOLDEN / case, out=case)
                tokens = ["--skip-tokenizer-init", "--prompt-tokens", "5,17,60,2", "--max-tokens", "8", "--temperature",
                          "0", "--json", "--dtype", "float32", "--device", "cpu"]
                first, second = (run("generate", model, *tokens) for model in (GOLDEN / case, self.folder / case))
                self.assert_ok(second)
                self.assertEqual(json_lines(first.stdout)[0]["token_ids"][0],
                                 json_lines(second.stdout)[0]["token_ids"][0])

    def test_output_that_is_there(self):
        out = self.folder / "out"
        out.mkdir()
        self.quantize()  # an empty one will do
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

    def test_ctrl_c_leaves_nothing(self):
        self.text.write_text(TEXT * 200)
        process = subprocess.Popen([BINARY, "quantize", LEXICON, self.folder / "out", "--calibrate", self.text],
                                   stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        while not list(self.folder.glob("*.partial")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn(b"interrupted; nothing is left", errors)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_wrong_usage(self):
        self.assert_error(run("quantize", LEXICON), 2, "OUT")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--scheme", "int3"), 2, "int3")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--scheme", "fp8", "--symmetric"), 2,
                          "--symmetric")
        self.assert_error(run("quantize", LEXICON, self.folder / "out", "--group-size", "48"), 2, "48")
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

    def test_defaults(self):
        figures = self.measure()
        self.assertEqual((figures["context"], figures["stride"]), (1024, 512))
        text = run("perplexity", LEXICON, "--file", self.text, "--device", "cpu").stdout
        self.assertIn(f"perplexity {figures['perplexity']:.4f} +- {figures['standard_error']:.4f}", text)

    def test_wrong_usage(self):
        self.assert_error(run("perplexity", LEXICON), 2, "--file")
        self.assert_error(run("perplexity", LEXICON, "--file", "/nowhere.txt"), 1, "/nowhere.txt")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "1"), 1, "context is 1")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "9999"), 1, "expected 2 to 2047")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text, "--context", "8", "--stride", "8"), 1,
                          "expected 1 to 7")
        self.text.write_text("")
        self.assert_error(run("perplexity", LEXICON, "--file", self.text), 1, "expected 2 or more")


if __name__ == "__main__":
    unittest.main()
