"""Every command on the GPUs of this machine, with no flag for them; skips itself where there is none.

QUIRE_CUDA_LIBRARY names the CUDA library, if it is not beside the binary.
"""

import json
import sys
import unittest

from server_support import serving
from support import CPU, PROMPTS, CliTest, generate, json_lines, run

NO_GPU = 77  # SKIP_RETURN_CODE


def where(*arguments):
    """What a plan says of the device."""
    plan = json.loads(run("plan", "--json", *arguments).stdout or '{"device": ""}')
    return plan["device"], plan.get("device_name", "")


class RealGpus(CliTest):
    @classmethod
    def setUpClass(cls):
        lines = json_lines(generate("--dtype", "float32", env=CPU).stdout)
        cls.expected = [line["token_ids"] for line in lines]
        cls.texts = [line["text"] for line in lines]

    def test_generate(self):
        for arguments in ((), ("--enforce-eager",), ("--max-num-batched-tokens", "16", "--max-num-seqs", "2")):
            with self.subTest(arguments=arguments):
                result = generate("--dtype", "float32", *arguments)
                self.assert_ok(result)
                self.assertEqual([line["token_ids"] for line in json_lines(result.stdout)], self.expected)

    def test_generate_in_lower_precision(self):
        for arguments in ((), ("--kv-cache-dtype", "fp8"), ("--dtype", "float16")):
            with self.subTest(arguments=arguments):
                result = generate(*arguments)
                self.assert_ok(result)
                self.assertEqual(len(json_lines(result.stdout)), len(PROMPTS))

    def test_generate_on_two(self):
        if where("--tensor-parallel-size", 2)[0] != "cuda":
            self.skipTest("there are no two GPUs here")
        result = generate("--dtype", "float32", "--tensor-parallel-size", 2)
        self.assert_ok(result)
        self.assertEqual([line["token_ids"] for line in json_lines(result.stdout)], self.expected)

    def test_chat(self):
        result = run("chat", "--dtype", "float32", "--temperature", "0", stdin="\n".join(PROMPTS[:2]) + "\n")
        self.assert_ok(result)
        self.assertIn(self.texts[0], result.stdout)

    def test_serve(self):
        with serving("--dtype", "float32") as server:
            self.assertIn(where()[1], server.log)
            for prompt, text in zip(PROMPTS, self.texts):
                status, _, answer = server.chat(prompt)
                self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, text))

    def test_two_servers_on_one_gpu(self):
        arguments = ("--gpu-memory-utilization", "0.4")
        with serving(*arguments) as first, serving(*arguments) as second:
            for server in (first, second, first):
                self.assertEqual(server.chat(PROMPTS[0])[0], 200)

    def test_bench(self):
        for bench in (("throughput", "--num-seqs", 16), ("latency", "--batch", 4)):
            result = run("bench", *bench, "--input-len", 64, "--output-len", 16, "--json")
            self.assert_ok(result)
            self.assertIsNotNone(json.loads(result.stdout)["gpu_idle"])


if __name__ == "__main__":
    if where()[0] != "cuda":
        print("There is no GPU here: quire's commands are not run on one.")
        sys.exit(NO_GPU)
    unittest.main()
