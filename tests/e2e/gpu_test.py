"""Every command on a GPU: simulated ones (tests/simulated_gpu), so that this runs anywhere."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from lora_adapters import write_adapter
from server_support import Server, serving
from support import (BINARY, CPU, LEXICON, PROMPTS, CliTest, float8_lexicon_config, generate, gpus, json_lines, model_copy,
                     run)

HEAD = LEXICON.parent / "lexicon-eagle3"
DRAFTS = ("--speculative-config", json.dumps({"method": "eagle3", "model": str(HEAD), "adaptive": False}))
ENDLESS = {"max_tokens": 1500, "ignore_eos": True}
# Of a process whose GPU has failed: far more than it takes, far less than for ever.
END_S = 300


class SameTokens(CliTest):
    """With no flag at all a command runs on the GPU, and in float32 it gives the CPU's tokens."""

    @classmethod
    def setUpClass(cls):
        cls.expected = json_lines(generate("--dtype", "float32", env=CPU).stdout)
        cls.texts = [line["text"] for line in cls.expected]

    def tokens_of(self, prompts, *arguments, env):
        """The ids of greedy answers to the prompts of a file."""
        result = run("generate", LEXICON, "--dtype", "float32", "--temperature", "0", "--max-tokens", "12", "--json",
                     "--prompt-file", prompts, *arguments, env=env)
        self.assert_ok(result)
        return [line["token_ids"] for line in json_lines(result.stdout)]

    def test_generate(self):
        for arguments, env in (((), gpus()), (("--enforce-eager",), gpus()), ((), gpus(pace="lazy")),
                               ((), gpus(decoder_step=1)),
                               (("--tensor-parallel-size", "2"), gpus(2)),
                               (("--tensor-parallel-size", "2"), gpus(2, pace="lazy")),
                               (("--tensor-parallel-size", "2"), gpus(2, decoder_step=1)),
                               (("--pipeline-parallel-size", "2"), gpus(2)),
                               (("--pipeline-parallel-size", "3", "--enforce-eager"), gpus(3, pace="lazy")),
                               (("--pipeline-parallel-size", "2", "--tensor-parallel-size", "2"), gpus(4)),
                               (("--max-num-batched-tokens", "16", "--max-num-seqs", "2"), gpus())):
            with self.subTest(arguments=arguments, env=env):
                result = generate("--dtype", "float32", *arguments, env=env)
                self.assert_ok(result)
                tokens = [line["token_ids"] for line in json_lines(result.stdout)]
                self.assertEqual(tokens, [line["token_ids"] for line in self.expected])

    def test_adapters(self):
        with tempfile.TemporaryDirectory() as root:
            folders = [write_adapter(pathlib.Path(root) / f"rank{rank}", seed=rank, rank=rank) for rank in (4, 20)]
            folders.append(write_adapter(pathlib.Path(root) / "all", seed=1, rank=5, extras=True))
            loras = [text for folder in folders for text in ("--lora", f"{folder.name}={folder}")]
            lines = "".join(json.dumps({"prompt": PROMPTS[i % len(PROMPTS)], "lora": lora}) + "\n"
                            for i, lora in enumerate((None, "rank4", "all", "rank20", "rank4", None, "rank20", "all")))
            prompts = pathlib.Path(root) / "prompts.jsonl"
            prompts.write_text(lines)

            def tokens(*arguments, env):
                return self.tokens_of(prompts, *loras, *arguments, env=env)

            expected = tokens(env=CPU)
            self.assertNotEqual(expected[2], expected[5])  # the same prompt, with "all" and without an adapter
            self.assertEqual(tokens(env=gpus()), expected)
            self.assertEqual(tokens("--pipeline-parallel-size", "2", env=gpus(2)), expected)
            for arguments in ((), ("--max-num-seqs", "2"), ("--max-num-seqs", "2", "--enforce-eager")):
                self.assertEqual(tokens(*arguments, env=gpus(decoder_step=1)), expected)
            self.assertEqual(tokens("--pipeline-parallel-size", "2", "--max-num-seqs", "4",
                                    env=gpus(2, decoder_step=1)), expected)
            self.assertEqual(tokens("--tensor-parallel-size", "2", env=gpus(2, decoder_step=1)), expected)
            self.assertEqual(tokens("--max-num-batched-tokens", "8", "--enforce-eager", env=gpus(pace="lazy")), expected)
            self.assert_ok(run("bench", "latency", LEXICON, "--batch", "3", "--input-len", "16", "--output-len", "4",
                               "--num-iters", "1", *loras, env=gpus()))

    def test_trained_copies(self):
        with tempfile.TemporaryDirectory() as root:
            folders = [write_adapter(pathlib.Path(root) / f"copies{seed}", seed=seed, copies=True) for seed in (1, 2)]
            folders.append(write_adapter(pathlib.Path(root) / "plain", seed=3))
            loras = [text for folder in folders for text in ("--lora", f"{folder.name}={folder}")]
            prompts = pathlib.Path(root) / "prompts.jsonl"
            prompts.write_text("".join(
                json.dumps({"prompt": PROMPTS[0], "lora": lora}) + "\n"
                for lora in (None, "copies1", "plain", "copies2", "copies1", None, "copies2")))

            def tokens(*arguments, env):
                return self.tokens_of(prompts, *loras, *arguments, env=env)

            expected = tokens(env=CPU)
            self.assertEqual(len({tuple(answer) for answer in expected}), 4)
            self.assertEqual(tokens(env=gpus()), expected)
            self.assertEqual(tokens("--max-num-seqs", "2", env=gpus(decoder_step=1)), expected)
            self.assertEqual(tokens("--tensor-parallel-size", "2", env=gpus(2)), expected)
            self.assertEqual(tokens("--pipeline-parallel-size", "2", env=gpus(2, pace="lazy")), expected)
            # Of 8 layers 256 x 256 numbers in bfloat16.
            bench = ("bench", "latency", LEXICON, "--batch", "3", "--input-len", "16", "--output-len", "4", "--num-iters",
                     "1", *loras)
            self.assert_ok(run(*bench, "--lora-copy-memory-bytes", "1M", env=gpus()))
            self.assert_error(run(*bench, "--lora-copy-memory-bytes", "1048575", env=gpus()), 1,
                              "take 1048576 bytes on a GPU, where --lora-copy-memory-bytes leaves 1048575")

    def test_a_cache_in_fp8(self):
        result = run("generate", "--temperature", "0", "--chat", "-p", PROMPTS[0], "--kv-cache-dtype", "fp8", env=gpus())
        self.assert_ok(result)
        self.assertIn("fruit", result.stdout)
        plan = run("plan", "--kv-cache-dtype", "fp8", env=gpus())
        self.assertRegex(plan.stdout, r"kv cache .* fp8")
        self.assert_error(run("plan", "--kv-cache-dtype", "int8", env=gpus()), 1,
                          "--kv-cache-dtype int8 needs the CPU (--device cpu); GPUs have kernels for fp8 and fp8_e5m2.")

    def test_float8_weights_stay_so_where_the_gpu_multiplies_by_them(self):
        with model_copy(config__json=float8_lexicon_config(), without=("model.safetensors",)) as folder:
            arguments = (folder, "--dtype", "bfloat16", "--load-format", "dummy")
            for capability, attention in ((90, "fp8 with scales"), (80, "bfloat16 from compressed-tensors")):
                plan = run("plan", *arguments, env=gpus(capability=capability))
                self.assert_ok(plan)
                self.assertRegex(plan.stdout, rf"attention weights .* {attention}")
                # 576 inputs are no multiple of 128.
                self.assertRegex(plan.stdout, r"MLP weights .* bfloat16")
                self.assert_ok(run("generate", *arguments, "--max-tokens", "4", "-p", "x",
                                   env=gpus(2, capability=capability)))

    def test_rounding_weights_to_float8(self):
        result = run("generate", "--temperature", "0", "--chat", "-p", PROMPTS[0], "--quantization", "fp8", env=gpus())
        self.assert_ok(result)
        self.assertIn("fruit", result.stdout)
        plan = run("plan", "--quantization", "fp8", env=gpus())
        self.assertRegex(plan.stdout, r"attention weights .* fp8 with scales")
        self.assert_error(run("plan", "--quantization", "fp8", env=gpus(capability=80)), 1,
                          "--quantization fp8 needs a GPU of compute capability 9.0, and Simulated GPU has 8.0")
        self.assert_error(run("plan", "--quantization", "fp8", "--dtype", "float32", env=gpus()), 1,
                          "--quantization fp8 goes with --dtype bfloat16 or float16, not float32")

    def test_what_quantize_writes_in_float8(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "fp8"
            self.assert_ok(run("quantize", LEXICON, model, "--scheme", "fp8", "--json"))
            plan = run("plan", model, env=gpus())
            self.assertRegex(plan.stdout, r"attention weights .* fp8 with scales")
            ask = ("generate", model, "--temperature", "0", "--chat", "-p", PROMPTS[0])
            for count in (1, 2):
                result = run(*ask, "--tensor-parallel-size", count, env=gpus(count))
                self.assert_ok(result)
                self.assertIn("fruit", result.stdout)
            # A scale that is no number is found before memory of the GPU is taken.
            name = "model.layers.0.mlp.up_proj.weight_scale"
            file = model / "model.safetensors"
            weights = bytearray(file.read_bytes())
            length = int.from_bytes(weights[:8], "little")
            begin = 8 + length + json.loads(weights[8:8 + length])[name]["data_offsets"][0]
            weights[begin:begin + 2] = b"\xc0\x7f"
            file.write_bytes(weights)
            self.assert_error(run(*ask, env=gpus(fault="0:reserve:1")), 1,
                              f"the tensor {name} holds nan at index 0; expected scales that are finite and not zero.")

    def test_rounding_weights_to_integers(self):
        for to, layers in (("int8", "int8 in groups of 128"), ("int4", "int4 in groups of 128 with offsets")):
            result = run("generate", "--temperature", "0", "--chat", "-p", PROMPTS[0], "--max-tokens", "8",
                         "--quantization", to, env=gpus())
            self.assert_ok(result)
            self.assertIn("fruit", result.stdout)
            self.assertRegex(run("plan", "--quantization", to, env=gpus()).stdout, rf"MLP weights .* {layers}")
            self.assert_error(run("plan", "--quantization", to, env=gpus(capability=80)), 1,
                              f"--quantization {to} needs a GPU of compute capability 9.0, and Simulated GPU has 8.0")

    def test_what_quantize_writes_in_integers(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "int4"
            self.assert_ok(run("quantize", LEXICON, model, "--scheme", "int4", "--json"))
            for capability, layers in ((90, "int4 in groups"), (80, "bfloat16 from compressed-tensors pack-quantized")):
                plan = run("plan", model, env=gpus(capability=capability))
                self.assertRegex(plan.stdout, rf"attention weights .* {layers}")
            for count in (1, 2):
                result = run("generate", model, "--temperature", "0", "--chat", "-p", PROMPTS[0], "--max-tokens", "8",
                             "--tensor-parallel-size", count, env=gpus(count))
                self.assert_ok(result)
                self.assertIn("fruit", result.stdout)

    def test_speculation(self):
        arguments = ("generate", "--dtype", "float32", "--temperature", "0", "--max-tokens", "60", "-p",
                     "apple pear apple pear apple")
        plain = run(*arguments, env=gpus())
        self.assert_ok(plain)
        for config in ({"method": "ngram"}, {"method": "suffix"}, {"method": "draft_model", "model": str(LEXICON)},
                       {"method": "eagle3", "model": str(HEAD)}):
            for count in (1, 2):
                drafted = run(*arguments, "--speculative-config", json.dumps({**config, "adaptive": False}),
                              "--tensor-parallel-size", count, env=gpus(count))
                self.assert_ok(drafted)
                self.assertEqual(drafted.stdout, plain.stdout)

    def test_synthetic_acceptance_says_that_answers_are_wrong(self):
        result = run("generate", "--max-tokens", "8", "-p", "apple", "--speculative-config",
                     '{"method": "ngram", "synthetic_acceptance_length": 3}', env=gpus())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("answers are wrong", result.stderr)

    def test_chat(self):
        arguments = ("chat", "--dtype", "float32", "--temperature", "0")
        stdin = "define apple\nwhat does candid mean?\n"
        expected = run(*arguments, stdin=stdin, env=CPU)
        result = run(*arguments, stdin=stdin, env=gpus())
        self.assert_ok(result)
        self.assertEqual(result.stdout, expected.stdout)
        self.assertIn(self.texts[0], result.stdout)

    def test_serve(self):
        with serving("--dtype", "float32", env=gpus()) as server:
            self.assertIn("on Simulated GPU", server.log)
            for prompt, text in zip(PROMPTS, self.texts):
                status, _, answer = server.chat(prompt)
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["choices"][0]["message"]["content"], text)

    def test_two_engines_on_one_gpu(self):
        arguments = ("--dtype", "float32", "--gpu-memory-utilization", "0.4")
        with serving(*arguments, env=gpus()) as first, serving(*arguments, env=gpus()) as second:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                answers = list(pool.map(lambda server: server.chat(PROMPTS[0]), [first, second] * 2))
        for status, _, answer in answers:
            self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, self.texts[0]))


class WhatItSays(CliTest):
    def test_plan_says_where(self):
        for env, ranks, device, name in ((gpus(), 1, "cuda", "Simulated GPU"), (CPU, 1, "cpu", ""),
                                         (gpus(2), 2, "cuda", "2 x Simulated GPU")):
            result = run("plan", "--tensor-parallel-size", ranks, env=env)
            self.assert_ok(result)
            self.assertIn(f"bfloat16 on {name or device}", result.stdout)
            plan = json.loads(run("plan", "--json", "--tensor-parallel-size", ranks, env=env).stdout)
            self.assertEqual((plan["device"], plan["device_name"], plan["device_note"]), (device, name, ""))

    def test_plan_keeps_to_its_share_of_the_gpu(self):
        for share in (0.9, 0.4):
            result = run("plan", "--json", "--gpu-memory-utilization", share, env=gpus(gpu_memory=10**9))
            self.assert_ok(result)
            plan = json.loads(result.stdout)
            self.assertAlmostEqual(plan["available_bytes"], share * 10**9, delta=1)
            self.assertLessEqual(plan["total_bytes"], plan["available_bytes"])

    def test_bench(self):
        result = run("bench", "latency", "--batch", "2", "--input-len", "16", "--output-len", "8", "--num-iters", "1",
                     env=gpus())
        self.assert_ok(result)
        self.assertIn("time per token", result.stdout)

    def test_the_host_alone(self):
        bench = ("bench", "throughput", "--num-seqs", "8", "--input-len", "20", "--output-len", "30", "--json")
        result = run(*bench, env=gpus(pace="instant"))
        self.assert_ok(result)
        self.assertEqual(json.loads(result.stdout)["output_tokens"], 8 * 30)
        self.assert_error(run(*bench, "--device", "cuda", env=gpus(pace="slow")), 1, "QUIRE_SIMULATED_PACE",
                          "lazy or instant")

    def test_what_measures_gpus_runs(self):
        script = pathlib.Path(__file__).parents[2] / "scripts" / "measure_gpu.py"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "figures.json"
            result = subprocess.run([sys.executable, script, "--quire", BINARY, "--smoke", "--gpus", "2", "--only", "st",
                                     "--json", file, "--commit", "0123abc"],
                                    env={**os.environ, **gpus(2)}, capture_output=True, encoding="utf-8", timeout=300)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            figures = json.loads(file.read_text())
        self.assertEqual(figures["commit"], "0123abc")
        self.assertTrue(figures["device"])
        rows = {(row["name"], row["model"], row["gpus"]): row for row in figures["rows"]}
        for name, model, count in (("1 stream", "Qwen3-0.6B", 1), ("256 streams", "Qwen3-8B", 1),
                                   ("start to first token", "Qwen3-0.6B", 1), ("1 stream", "Qwen3-8B", 2)):
            where = ", 2 GPUs" if count == 2 else ""
            self.assertIn(f"| {name}, {model}{where} |", result.stdout)
            self.assertGreater(rows[name, model, count]["figure"], 0)
        self.assertEqual(rows["1 stream", "Qwen3-0.6B", 1]["limit"], 3500)
        self.assertIn("vLLM", rows["1 stream", "Qwen3-0.6B", 1]["peers"])

    def test_what_measures_drafts_runs(self):
        script = pathlib.Path(__file__).parents[2] / "scripts" / "measure_speculation.py"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "figures.json"
            result = subprocess.run([sys.executable, script, "--quire", BINARY, "--smoke", "--only", " 1 stream, 3.0",
                                     "--json", file, "--commit", "0123abc"],
                                    env={**os.environ, **gpus()}, capture_output=True, encoding="utf-8", timeout=300)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            figures = json.loads(file.read_text())
        self.assertEqual(figures["commit"], "0123abc")
        for method in ("eagle3", "draft_model", "ngram"):
            found = [row for row in figures["rows"] if row["name"].startswith(method)]
            self.assertGreater(len(found), 1)
            for row in found:
                self.assertIn(f"| {row['name']}, {row['model']} |", result.stdout)
                self.assertGreater(row["with"], 0)
        self.assertEqual(figures["rows"][0]["goal"], 2.3)

    def test_no_library(self):
        for library, fragment in (("", "QUIRE_CUDA_LIBRARY is empty"), ("/nowhere.so", "/nowhere.so"),
                                  ("/dev/null", "cannot be loaded"), ("libc.so.6", "no library of quire's")):
            if library == "libc.so.6":
                library = foreign_library()
            result = run("plan", "--device", "cuda", env={"QUIRE_CUDA_LIBRARY": library})
            self.assert_error(result, 1, "--device cuda", fragment)

    def test_a_named_library_that_is_not_there_is_said_to_be_missing(self):
        result = run("generate", "-p", "a", "--max-tokens", "1", env={"QUIRE_CUDA_LIBRARY": "/nowhere.so"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("QUIRE_CUDA_LIBRARY is /nowhere.so, and there is no such file", result.stderr)

    def test_a_library_of_another_version(self):
        result = run("plan", "--device", "cuda", env=gpus(version="0.0.1"))
        self.assert_error(result, 1, "--device cuda", "was not made for this quire")

    def test_runs_on_the_cpu_with_a_note_where_a_gpu_cannot_be_used(self):
        for env, why in ((gpus(version="0.0.1"), "was not made for this quire"),
                         (gpus(capability=75), "GPU 0 (Simulated GPU) has compute capability 7.5"),
                         ({"QUIRE_CUDA_LIBRARY": "/dev/null"}, "/dev/null cannot be loaded")):
            result = run("generate", "-p", PROMPTS[0], "--max-tokens", "4", env=env)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("quire: Running on the CPU, as no GPU can be used: ", result.stderr)
            self.assertIn(why, result.stderr)
            self.assert_error(run("plan", "--device", "cuda", env=env), 1, "--device cuda", why)

    def test_no_gpu(self):
        self.assert_error(run("plan", "--device", "cuda", env=gpus(0)), 1, "CUDA finds no GPU", "nvidia-smi")
        result = run("plan", env=gpus(0))
        self.assert_ok(result)
        self.assertIn("on cpu", result.stdout)

    def test_fewer_gpus_than_ranks(self):
        for command in (["plan"], ["serve"], ["generate", "-p", "a"]):
            result = run(*command, "--tensor-parallel-size", "4", env=gpus(2))
            self.assert_error(result, 1, "--tensor-parallel-size is 4", "2 GPUs")

    def test_too_little_memory(self):
        for megabytes, setting in ((10, "smaller model"), (60, "--max-num-batched-tokens"), (116, "--max-model-len")):
            result = run("generate", "-p", "a", env=gpus(gpu_memory=megabytes * 10**6))
            self.assert_error(result, 1, "--gpu-memory-utilization", setting)

    def test_memory_that_another_program_took_meanwhile(self):
        for count in (1, 2):
            result = run("generate", "-p", "a", "--tensor-parallel-size", count,
                         env=gpus(count, fault=f"{count - 1}:reserve:1"))
            self.assert_error(result, 1, f"cuda:{count - 1}", "--gpu-memory-utilization")


class Faults(CliTest):
    """A GPU that fails ends all that needs it, with its own message, at once."""

    # GPUs, and the run that fails: while weights are loaded, in the prompt, in steps that are captured
    # graphs, in the copy of the results; on a rank that the engine does not wait for.
    CASES = ((1, "0:upload:5"), (1, "0:linear:3"), (1, "0:paged_attention:200"), (1, "0:copy_to_host:20"),
             (2, "0:upload:5"), (2, "1:upload:5"), (2, "0:paged_attention:200"), (2, "1:paged_attention:200"),
             (2, "1:all_reduce_add_norm:90"), (2, "1:linear:3"), (2, "0:decoder_step:20"), (2, "1:decoder_step:20"))

    def test_generate(self):
        for count, fault in self.CASES:
            with self.subTest(fault=fault, gpus=count):
                start = time.monotonic()
                decoder_step = int("decoder_step" in fault)
                result = generate("--dtype", "float32", "--max-tokens", "40", "--ignore-eos", "--tensor-parallel-size",
                                  count, env=gpus(count, fault=fault, decoder_step=decoder_step))
                self.assert_error(result, 1, "CUDA failed", "illegal memory access", fault.split(":")[1])
                self.assertLess(time.monotonic() - start, END_S)

    def test_the_kernel_of_a_whole_step_takes_adapters(self):
        # Its first run fails, where there is one: not of more ranks than it takes, nor on several GPUs.
        with tempfile.TemporaryDirectory() as root:
            for rank, gpu_count, is_run in ((16, 1, True), (64, 1, True), (65, 1, False), (16, 2, False)):
                with self.subTest(rank=rank, gpus=gpu_count):
                    folder = write_adapter(pathlib.Path(root) / f"{gpu_count}-{rank}", seed=rank, rank=rank)
                    result = run("generate", LEXICON, "--dtype", "float32", "--max-tokens", "8", "-p", "a", "--lora",
                                 f"a={folder}", "--tensor-parallel-size", gpu_count,
                                 env=gpus(gpu_count, fault="0:decoder_step:1", decoder_step=1))
                    if is_run:
                        self.assert_error(result, 1, "CUDA failed", "illegal memory access", "decoder_step")
                    else:
                        self.assert_ok(result)

    def test_stages(self):
        # In a stage's layers, in what it hands to the next, in the ids that come back, in sampling.
        for stages, fault in ((2, "0:linear:30"), (2, "1:linear:30"), (2, "0:copy_on_device:9"),
                              (2, "1:copy_on_device:9"), (2, "1:sample:5"), (4, "2:paged_attention:12"),
                              (2, "0:decoder_step:9"), (2, "1:decoder_step:9"), (4, "2:decoder_step:9")):
            with self.subTest(fault=fault, stages=stages):
                start = time.monotonic()
                result = generate("--dtype", "float32", "--max-tokens", "40", "--ignore-eos",
                                  "--pipeline-parallel-size", stages,
                                  env=gpus(stages, fault=fault, decoder_step=int("decoder_step" in fault)))
                self.assert_error(result, 1, "CUDA failed", "illegal memory access", fault.split(":")[1])
                self.assertLess(time.monotonic() - start, END_S)
        # With a head: where it drafts, in a later stage whose layers it looks at and which runs as one kernel, and in what comes back.
        for stages, fault in ((2, "0:gather_rows:40"), (2, "1:decoder_step:9"), (2, "1:copy_on_device:30"), (4, "3:sample:9")):
            with self.subTest(fault=fault, stages=stages, drafts=DRAFTS):
                start = time.monotonic()
                result = generate("--dtype", "float32", "--max-tokens", "40", "--ignore-eos",
                                  "--pipeline-parallel-size", stages, *DRAFTS,
                                  env=gpus(stages, fault=fault, decoder_step=1))
                self.assert_error(result, 1, "CUDA failed", "illegal memory access", fault.split(":")[1])
                self.assertLess(time.monotonic() - start, END_S)
        # Two ranks a stage, the host as far ahead as it can be, and memory that one stage does not find.
        for fault, pace in (("3:linear:30", None), ("0:all_reduce_add_norm:40", "lazy"),
                            ("0:memory_for_linear:20", None), ("2:memory_for_paged_attention:6", "lazy")):
            with self.subTest(fault=fault, pace=pace):
                start = time.monotonic()
                result = generate("--dtype", "float32", "--max-tokens", "40", "--ignore-eos", "--tensor-parallel-size",
                                  2, "--pipeline-parallel-size", 2,
                                  env=gpus(4, fault=fault, **({"pace": pace} if pace else {})))
                self.assert_error(result, 1, "CUDA failed",
                                  "out of memory" if "memory_for" in fault else "illegal memory access")
                self.assertLess(time.monotonic() - start, END_S)

    def test_a_step_that_nobody_waits_for(self):
        # An answer that ends by itself leaves a step that was begun before its end was known: among these
        # numbers is that step's.
        command = ("generate", "--dtype", "float32", "--temperature", "0", "--chat", "--json", "-p", "apple",
                   "--tensor-parallel-size", "2")
        num_steps = len(json_lines(run(*command, env=gpus(2)).stdout)[0]["token_ids"])
        for rank in (0, 1):
            codes = [run(*command, env=gpus(2, fault=f"{rank}:resolve_tokens:{number}")).returncode
                     for number in (num_steps, num_steps + 1, num_steps + 2)]
            # The last that the answer needs; the one that nobody waits for, whose failure may come
            # before or after the end; one that is not there.
            self.assertEqual((codes[0], codes[2]), (1, 0))
            self.assertIn(codes[1], (0, 1))

    def test_chat(self):
        result = run("chat", stdin="define apple\nwhat does candid mean?\n", env=gpus(fault="0:sample:3"))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("CUDA failed", result.stderr)

    def test_serve(self):
        for count, fault in ((1, "0:paged_attention:1000"), (2, "1:paged_attention:1000")):
            with self.subTest(fault=fault):
                server = Server("--tensor-parallel-size", count, env=gpus(count, fault=fault))
                self.addCleanup(server.kill)
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    streams = [pool.submit(last_event, server) for _ in range(3)]
                    others = [pool.submit(server.post, "/v1/completions", {"prompt": "define", **ENDLESS},
                                          timeout=END_S) for _ in range(2)]
                    for stream in streams:
                        error = stream.result()["error"]
                        self.assertIn("CUDA failed", error["message"])
                    for other in others:
                        status, _, answer = other.result()
                        self.assertEqual(status, 500, answer)
                        self.assertIn("CUDA failed", answer["error"]["message"])
                self.assertEqual(server.wait(END_S), 1)
                self.assertIn("CUDA failed", server.log)


class NoMemory(CliTest):
    """Where the driver finds no memory, a step does without, or its newest request ends; nothing else does."""

    def tokens(self, *arguments, env):
        result = generate("--dtype", "float32", "--max-tokens", "20", *arguments, env=env)
        self.assert_ok(result)
        return [line["token_ids"] for line in json_lines(result.stdout)]

    def test_a_graph_without_room_is_done_without(self):
        expected = self.tokens(env=gpus())
        for count, fault in ((1, "0:memory_for_graph:1"), (1, "0:memory_for_graph_launch:1"),
                             (1, "0:memory_for_graph_launch:7"), (2, "1:memory_for_graph:1"),
                             (2, "1:memory_for_graph_launch:4")):
            with self.subTest(fault=fault, gpus=count):
                self.assertEqual(self.tokens("--tensor-parallel-size", count, env=gpus(count, fault=fault)), expected)
                self.assertEqual(self.tokens("--tensor-parallel-size", count, *DRAFTS, env=gpus(count, fault=fault)),
                                 expected)

    def test_serve_ends_the_newest_request(self):
        asked = [{"prompt": f"define {word}", "temperature": 0, "max_tokens": 30, "ignore_eos": True}
                 for word in ("apple", "candid", "happy")]
        with serving("--dtype", "float32", env=gpus()) as server:
            expected = [server.post("/v1/completions", body)[2]["choices"][0]["text"] for body in asked]
        # The last two are of drafts, and of what is kept for them.
        for fault, drafts in (("0:memory_for_paged_attention:60", ()), ("0:memory_for_sample:20", ()),
                              ("0:memory_for_gather_columns:5", DRAFTS), ("0:memory_for_scatter_rows:9", DRAFTS)):
            with self.subTest(fault=fault):
                server = Server("--dtype", "float32", "--enforce-eager", *drafts, env=gpus(fault=fault))
                self.addCleanup(server.kill)
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    answers = list(pool.map(lambda body: server.post("/v1/completions", body, timeout=END_S), asked))
                failed = [(headers, answer) for status, headers, answer in answers if status == 503]
                self.assertEqual(len(failed), 1, answers)
                headers, answer = failed[0]
                self.assertIn("The GPU had no memory for a step", answer["error"]["message"])
                self.assertEqual(headers["Retry-After"], "1")
                for text, (status, _, answer) in zip(expected, answers):
                    if status == 200:
                        self.assertEqual(answer["choices"][0]["text"], text)
                for body, text in zip(asked, expected):
                    status, _, answer = server.post("/v1/completions", body, timeout=END_S)
                    self.assertEqual((status, answer["choices"][0]["text"]), (200, text))
                self.assertEqual(server.stop(), 0)

    def test_a_group_of_ranks_ends(self):
        # One of them cannot leave a step that the others wait in.
        result = generate("--tensor-parallel-size", "2", "--enforce-eager", env=gpus(2, fault="1:memory_for_linear:200"))
        self.assert_error(result, 1, "CUDA failed", "out of memory")


def foreign_library():
    """Any shared library that is not quire's: one that the program itself has loaded."""
    loaded = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    return re.search(r"(/\S*libcrypto\S*)", loaded)[1]


def last_event(server):
    """The last event of a streamed completion, which breaks off."""
    last = None
    with contextlib.closing(server.connect(END_S)) as connection:
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "define", "stream": True, **ENDLESS}),
                           {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                last = json.loads(line[len(b"data: "):])
    return last


class Signals(CliTest):
    def test_serve_lets_what_runs_finish(self):
        server = Server("--shutdown-timeout", "600", env=gpus(2))
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS, "max_tokens": 50})
        next(events)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(list(events)[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(server.wait(), 0)

    def test_a_second_signal_ends_serve_at_once(self):
        server = Server("--tensor-parallel-size", 2, env=gpus(2))
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS})
        next(events)
        server.process.send_signal(signal.SIGINT)
        server.wait_for(lambda: "stopping" in server.log, "stopping")
        self.assertEqual(server.stop(signal.SIGINT), 128 + signal.SIGINT)
        events.close()

    def test_generate_ends_with_what_is_there(self):
        requests = ({"prompt": "short", "max_tokens": 1}, {"prompt": "a", "ignore_eos": True, "max_tokens": None})
        for number, code, reasons in ((signal.SIGINT, 130, ["length", "abort"]),
                                      (signal.SIGTERM, -signal.SIGTERM, ["length"])):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write("".join(json.dumps(request) + "\n" for request in requests))
                file.flush()
                process = subprocess.Popen([BINARY, "generate", "--json", "--temperature", "0",
                                            "--tensor-parallel-size", "2", "--prompt-file", file.name],
                                           env={**os.environ, **gpus(2)}, encoding="utf-8", stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                # The first output says that the other is on its way.
                first = process.stdout.readline()
                process.send_signal(number)
                rest, stderr = process.communicate(timeout=END_S)
            self.assertEqual((process.returncode, stderr), (code, ""))
            self.assertEqual([line["finish_reason"] for line in json_lines(first + rest)], reasons)


if __name__ == "__main__":
    unittest.main()
