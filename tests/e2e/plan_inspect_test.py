"""quire plan and quire inspect."""

import json
import os
import re
import unittest

from support import CPU, FLOAT8, LEXICON, SOURCE_DIR, CliTest, float8_lexicon_config, lexicon_config, model_copy, run

UNPINNED = "(a rank's first thread is not pinned)"


class Plan(CliTest):
    def test_table_and_json_agree(self):
        options = ["--device", "cpu", "--kv-cache-memory-bytes", "64M", "--max-model-len", "1K"]
        table = run("plan", *options)
        self.assert_ok(table)
        plan = json.loads(run("plan", *options, "--json").stdout)
        for buffer in plan["buffers"]:
            self.assertIn(buffer["name"], table.stdout)
            self.assertIn(f"{buffer['bytes']:,}", table.stdout)
        self.assertEqual(plan["total_bytes"], sum(buffer["bytes"] for buffer in plan["buffers"]))
        self.assertEqual(plan["max_model_len"], 1024)
        self.assertEqual(plan["num_cache_tokens"], plan["num_blocks"] * plan["block_size"])
        # 8 layers, keys and values, 2 heads of 64, 16 tokens, 2 bytes
        self.assertEqual(plan["bytes_per_block"], 8 * 2 * 2 * 64 * 16 * 2)
        self.assertEqual(plan["num_blocks"], (64 << 20) // plan["bytes_per_block"])
        self.assertEqual(plan["max_full_length_seqs"], plan["num_cache_tokens"] // 1024)
        self.assertIn({"length": 1024, "sequences": plan["max_full_length_seqs"]}, plan["sequences_that_fit"])

    def test_stages_of_gpus_that_are_not_there(self):
        options = ["--pipeline-parallel-size", "3", "--tensor-parallel-size", "2", "--device-memory", "80G"]
        table = run("plan", *options)
        self.assert_ok(table)
        plan = json.loads(run("plan", *options, "--json").stdout)
        self.assertEqual(plan["device"], "cuda")
        self.assertIn("6 GPUs of 80 GiB", table.stdout)
        self.assertEqual(sum(stage["num_layers"] for stage in plan["stages"]), 8)
        self.assertEqual(sum(stage["kv_bytes"] for stage in plan["stages"]),
                         plan["num_blocks"] * plan["bytes_per_block"])
        uneven = run("plan", *options, "--pipeline-layers", "1,5,2", "--json")
        self.assertEqual([stage["num_layers"] for stage in json.loads(uneven.stdout)["stages"]], [1, 5, 2])
        self.assert_error(run("plan", *options, "--pipeline-layers", "1,5"), 1, "expected one number a stage")
        self.assert_error(run("plan", "--device-memory", "80G", "--device", "cpu"), 1, "--device-memory")
        self.assert_error(run("plan", "--device-memory", "0"), 2, "--device-memory")

    def test_adapters(self):
        def bytes_of(*options):
            plan = json.loads(run("plan", "--device", "cpu", "--json", *options).stdout)
            return {buffer["name"]: buffer["bytes"] for buffer in plan["buffers"]}.get("adapters", 0)

        self.assertEqual(bytes_of(), 0)
        one, two, three = (bytes_of("--enable-lora", "--max-loras", n) for n in "123")
        self.assertEqual(three - two, two - one)
        self.assertGreater(bytes_of("--enable-lora", "--max-lora-rank", "64"), one)
        self.assert_error(run("plan", "--max-loras", "2"), 2, "--max-loras needs --enable-lora")

    def test_copies_of_adapters(self):
        def bytes_of(*options):
            plan = run("plan", "--device-memory", "8G", "--json", "--enable-lora", *options)
            return {buffer["name"]: buffer["bytes"] for buffer in json.loads(plan.stdout)["buffers"]}["adapters"]

        one, two = (bytes_of("--lora-copy-memory-bytes", size) for size in ("1M", "3M"))
        self.assertEqual(two - one, 2 << 20)
        self.assertEqual(bytes_of("--lora-copy-memory-bytes", "3M", "--tensor-parallel-size", "2")
                         - bytes_of("--lora-copy-memory-bytes", "1M", "--tensor-parallel-size", "2"), 4 << 20)
        self.assert_error(run("plan", "--lora-copy-memory-bytes", "1M"), 2,
                          "--lora-copy-memory-bytes needs --enable-lora")
        self.assert_error(run("plan", "--enable-lora", "--lora-copy-memory-bytes", "1025G"), 2, "expected 0 to")

    def test_needs_no_weights(self):
        with model_copy(without=("model.safetensors",)) as folder:
            self.assert_ok(run("plan", folder, "--load-format", "dummy"))

    def test_no_memory_for_one_sequence(self):
        self.assert_error(run("plan", "--kv-cache-memory-bytes", "100K"), 1, "--kv-cache-memory-bytes")

    def test_longer_than_the_model_allows(self):
        self.assert_error(run("plan", "--max-model-len", "1M"), 1, "--max-model-len")

    def test_what_needs_a_gpu_says_so(self):
        no_gpu = {"QUIRE_CUDA_LIBRARY": ""}
        for options, sentence in (
            (["--device", "cuda"],
             "--device cuda: QUIRE_CUDA_LIBRARY is empty, which turns the CUDA backend off."),
            (["--dtype", "float16", "--device", "cpu"],
             "--dtype float16 needs a GPU; on the CPU float32 holds every float16."),
            (["--dtype", "float16"],
             "--dtype float16 needs a GPU; on the CPU float32 holds every float16."),
            (["--linear-algorithms", "tuned.json"], "--linear-algorithms needs a GPU."),
        ):
            for command in (["plan"], ["generate", "-p", "x"]):
                with self.subTest(command=command[0], options=options):
                    self.assert_error(run(*command, *options, env=no_gpu), 1, sentence)

    def test_no_cuda_library(self):
        result = run("plan", "--device", "cuda", env={"QUIRE_CUDA_LIBRARY": "/nowhere/libquire_cuda.so"})
        self.assert_error(result, 1, "--device cuda: QUIRE_CUDA_LIBRARY is /nowhere/libquire_cuda.so, and there is no "
                                     "such file.")
        # Where nobody asked for a GPU, the CPU does.
        result = run("plan", "--json", env={"QUIRE_CUDA_LIBRARY": "/nowhere/libquire_cuda.so"})
        self.assert_ok(result)
        self.assertEqual(json.loads(result.stdout)["device"], "cpu")


    def test_weights_that_are_rounded_as_they_load(self):
        def buffers(*options):
            plan = json.loads(run("plan", "--json", "--device", "cpu", *options).stdout)
            return {buffer["name"]: buffer for buffer in plan["buffers"]}

        dense, int4 = buffers(), buffers("--quantization", "int4")
        self.assertEqual(int4["MLP weights"]["detail"], "int4 in groups of 32 with offsets, activations int8")
        self.assertEqual(int4["embedding"]["detail"], "int8 in groups of 32, activations int8")
        # 4 bits, and a 32nd of two bfloat16, for each 16; 8 bits and a 32nd of one.
        self.assertEqual(int4["MLP weights"]["bytes"] * 16, dense["MLP weights"]["bytes"] * 5)
        exact = buffers("--quantization", "int8", "--dtype", "float32")
        self.assertEqual(exact["MLP weights"]["detail"], "int8 in groups of 32, activations float32")
        self.assertEqual(exact["MLP weights"]["bytes"] * 32, dense["MLP weights"]["bytes"] * 17)

    def test_where_threads_run(self):
        plan = json.loads(run("plan", "--json", "--device", "cpu", "--threads", "1").stdout)
        self.assertRegex(plan["threads"], r"^1 thread: CPU \d+ of NUMA node \d+ " + re.escape(UNPINNED) + "$")
        self.assertIn(plan["threads"], run("plan", "--device", "cpu", "--threads", "1").stdout)
        many = json.loads(run("plan", "--json", "--device", "cpu", "--threads", "1000").stdout)
        self.assertEqual(many["threads"], "1000 threads: not pinned")

    def test_ranks_are_spread_over_numa_nodes(self):
        if not {0, 1} <= os.sched_getaffinity(0):
            self.skipTest("hwloc's made-up machine has CPUs 0 and 1")
        two_nodes = {"HWLOC_SYNTHETIC": "numanode:2 core:1 pu:1"}
        options = ("--device", "cpu", "--threads", "2")
        ranks = run("plan", "--json", *options, "--tensor-parallel-size", "2", env=two_nodes)
        self.assertEqual(json.loads(ranks.stdout)["threads"],
                         "2 threads in 2 ranks: CPU 0 of NUMA node 0; CPU 1 of NUMA node 1 " + UNPINNED)
        one = run("plan", "--json", *options, env=two_nodes)
        self.assertEqual(json.loads(one.stdout)["threads"], "2 threads: CPUs 0-1 of NUMA nodes 0 and 1 " + UNPINNED)
        # Where the system refuses, as the second node is not there, it runs all the same.
        answer = ("generate", "-p", "define apple", "--chat", "--temperature", "0", "--max-tokens", "8", *options)
        self.assertEqual(run(*answer, env=two_nodes).stdout, run(*answer).stdout)

    def test_a_kv_cache_of_a_byte_an_element(self):
        for dtype, bytes_per_head in (("fp8", 64), ("fp8_e5m2", 64), ("int8", 64 + 4)):
            plan = json.loads(run("plan", "--json", "--device", "cpu", "--kv-cache-dtype", dtype).stdout)
            # 8 layers, keys and values, 2 heads, 16 tokens
            self.assertEqual(plan["bytes_per_block"], 8 * 2 * 2 * 16 * bytes_per_head)
            cache = next(buffer for buffer in plan["buffers"] if buffer["name"] == "kv cache")
            self.assertRegex(cache["detail"], f", {dtype}$")
        with model_copy(config__json=lexicon_config(head_dim=36)) as folder:
            self.assert_error(run("plan", folder, "--device", "cpu", "--kv-cache-dtype", "int8"), 1,
                              "--kv-cache-dtype int8: this model's head_dim is 36; expected a multiple of 8, at most 1024.")
        self.assert_error(run("plan", "--kv-cache-dtype", "int4"), 2, "auto, fp8, fp8_e4m3, fp8_e5m2, int8")

    def test_quantization_is_one_of_four(self):
        self.assert_error(run("plan", "--quantization", "int5"), 2, "none, fp8, int8, int4")


class Inspect(CliTest):
    def test_bundled_model(self):
        info = json.loads(run("inspect", "--json").stdout)
        self.assertEqual(info["architecture"], "Qwen3ForCausalLM")
        self.assertTrue(info["supported"])
        self.assertEqual((info["num_layers"], info["vocab_size"], info["head_dim"]), (8, 8192, 64))
        self.assertTrue(info["has_tokenizer"] and info["has_chat_template"] and info["tie_word_embeddings"])
        self.assertEqual(info["eos_token_ids"], [8191, 8189])
        self.assertIn("model.embed_tokens.weight", {tensor["name"] for tensor in info["tensors"]})
        table = run("inspect", LEXICON, "--tensors")
        self.assert_ok(table)
        self.assertIn("model.embed_tokens.weight", table.stdout)
        self.assertIn("Qwen3ForCausalLM", table.stdout)

    def test_an_unsupported_model_is_described(self):
        with model_copy(config__json=lexicon_config(architectures=["MambaForCausalLM"])) as folder:
            result = run("inspect", folder)
            self.assert_ok(result)
            self.assertRegex(result.stdout, r"supported +no: .*MambaForCausalLM")
            self.assert_error(run("generate", folder, "-p", "x"), 1, "MambaForCausalLM")

    def test_no_such_model(self):
        for command in ("inspect", "plan"):
            self.assert_error(run(command, "/nowhere"), 1, "/nowhere")
            self.assert_error(run(command, "nobody/nothing", env={"HF_HUB_CACHE": "/nowhere"}), 1, "nobody/nothing")


class Quantised(CliTest):
    def test_inspect_says_how(self):
        info = json.loads(run("inspect", FLOAT8, "--json").stdout)
        self.assertTrue(info["supported"])
        self.assertEqual(info["quantization"],
                         "compressed-tensors float-quantized, float8 e4m3, a scale for each output; 13 of 15 layers, "
                         "not model.layers.1.mlp.down_proj, lm_head")
        self.assertIn({"F8_E4M3"}, [{tensor["dtype"]} for tensor in info["tensors"]])
        self.assertRegex(run("inspect", FLOAT8).stdout, r"quantisation +compressed-tensors float-quantized")
        self.assertEqual(json.loads(run("inspect", "--json").stdout)["quantization"], "")

    def test_inspect_says_how_activations_are_rounded(self):
        awq = run("inspect", SOURCE_DIR / "tests/golden/quantised/awq")
        self.assertRegex(awq.stdout, r"activations +int8 on the CPU in 6 of 9 matrices, not rounded on a GPU; "
                                     r"with --dtype float32 never rounded")
        info = json.loads(run("inspect", FLOAT8, "--json").stdout)
        self.assertIn("not rounded on the CPU", info["activations"])
        self.assertNotIn("activations", run("inspect").stdout)

    def test_plan_counts_the_bytes(self):
        options = ("--device", "cpu", "--kv-cache-memory-bytes", "1M")
        plan = json.loads(run("plan", FLOAT8, *options, "--json").stdout)
        buffers = {buffer["name"]: buffer for buffer in plan["buffers"]}
        # As the test of the model computes them: panels of 64 outputs, a float32 scale and bias each.
        attention = 2 * ((64 + 64) * 32 + (64 + 32) * (4 + 4))
        self.assertEqual((buffers["attention weights"]["bytes"], buffers["attention weights"]["detail"]),
                         (attention, "fp8 with scales"))
        self.assertEqual(buffers["MLP weights"]["detail"], "float32, fp8 with scales")
        two = json.loads(run("plan", FLOAT8, *options, "--tensor-parallel-size", "2", "--json").stdout)
        self.assertIn("fp8 with scales, 2 ranks", [buffer["detail"] for buffer in two["buffers"]])

    def test_runs(self):
        with model_copy(config__json=float8_lexicon_config(), without=("model.safetensors",)) as folder:
            arguments = ("generate", folder, "--load-format", "dummy", "--ignore-eos", "--max-tokens", "4", "-p", "x")
            self.assert_ok(run(*arguments, "--device", "cpu"))
            self.assert_ok(run(*arguments, "--device", "cpu", "--tensor-parallel-size", "2"))

    def test_each_format_is_named_and_counted(self):
        for name, stored, computed in (
                ("gptq-4bit", "GPTQ, 4 bits, groups of 32; 14 of 15 layers, not lm_head", "int4"),
                ("gptq-act-order", "GPTQ, 4 bits, groups of 32, zero points, act-order; 14 of 15 layers, not lm_head", None),
                ("awq", "AWQ, 4 bits, groups of 64, zero points; 12 of 15 layers", "int4"),
                ("ct-int8", "compressed-tensors int-quantized, 8 bits, a scale for each output; 13 of 15 layers", "int8"),
                ("fp8-block", "fp8, float8 e4m3, blocks of 32 x 48; 14 of 15 layers", "float32")):
            with self.subTest(name=name):
                folder = SOURCE_DIR / "tests/golden/quantised" / name
                info = json.loads(run("inspect", folder, "--json").stdout)
                self.assertTrue(info["supported"])
                self.assertIn(stored, info["quantization"])
                plan = json.loads(run("plan", folder, "--device", "cpu", "--json").stdout)
                self.assertEqual(info["num_parameters"], plan["num_parameters"])
                # Embedding and output layer, projections, norms; Qwen2's biases.
                projections = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
                biases = 2 * (64 + 2 * 32) if info["architecture"] == "Qwen2ForCausalLM" else 0
                self.assertEqual(plan["num_parameters"], 2 * 96 * 64 + projections + 5 * 64 + biases)
                detail = {buffer["name"]: buffer["detail"] for buffer in plan["buffers"]}["MLP weights"]
                if computed:
                    self.assertTrue(detail.startswith(computed), detail)
                self.assertIn("from " + stored.split(";")[0], detail)

    def test_gptq_runs(self):
        gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False}
        config = lexicon_config(quantization_config=gptq)
        with model_copy(config__json=config, without=("model.safetensors",)) as folder:
            arguments = ("generate", folder, "--load-format", "dummy", "--ignore-eos", "--max-tokens", "4", "-p", "x")
            self.assert_ok(run(*arguments, "--device", "cpu"))
            self.assert_ok(run(*arguments, "--device", "cpu", "--dtype", "float32", "--tensor-parallel-size", "2"))

    def test_what_is_not_read_is_named(self):
        for changes, name in (({"quant_method": "bitsandbytes"}, "quantization_config.quant_method"),
                              ({"format": "marlin-24"}, "quantization_config.format"),
                              ({"ignore": ["re:("]}, "quantization_config.ignore")):
            with model_copy(config__json=float8_lexicon_config(**changes)) as folder:
                for command in (("inspect", folder), ("generate", folder, "-p", "x")):
                    self.assert_error(run(*command, env=CPU), 1, "config.json", name)

    def test_a_checkpoint_that_is_not_quantised_after_all(self):
        with model_copy(config__json=float8_lexicon_config()) as folder:
            self.assert_error(run("generate", folder, "-p", "x", env=CPU), 1,
                              "model.safetensors", "expected F8_E4M3, as quantization_config")


if __name__ == "__main__":
    unittest.main()
