"""Every command on the GPUs of this machine, with no flag for them; skips itself where there is none.

QUIRE_CUDA_LIBRARY names the CUDA library, if it is not beside the binary.
"""

import json
import os
import sys
import unittest

from nodes_support import SMALL, group
from nodes_support import serving as serving_nodes
from server_support import serving
from support import CPU, LEXICON, PROMPTS, CliTest, generate, json_lines, run

NO_GPU = 77  # SKIP_RETURN_CODE
# Of two processes with a GPU each.
LAYOUTS = ({"tensor": 2}, {"stages": 2})
HEAD = ("--speculative-config", json.dumps({"method": "eagle3", "model": f"{LEXICON}-eagle3", "adaptive": False}))


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

    def test_generate_in_two_stages(self):
        if where("--pipeline-parallel-size", 2)[0] != "cuda":
            self.skipTest("there are no two GPUs here")
        for arguments in ((), HEAD):
            with self.subTest(arguments=arguments):
                result = generate("--dtype", "float32", "--pipeline-parallel-size", 2, *arguments)
                self.assert_ok(result)
                self.assertEqual([line["token_ids"] for line in json_lines(result.stdout)], self.expected)

    def test_generate_in_two_processes(self):
        prompts = [argument for prompt in PROMPTS for argument in ("-p", prompt)]
        for layout in LAYOUTS:
            for arguments in ((), ("--enforce-eager",), HEAD):
                with self.subTest(layout=layout, arguments=arguments), \
                        group("generate", "--temperature", 0, "--chat", "--json", *prompts, **layout, env=self.two_gpus(),
                              options=(*SMALL, "--dtype", "float32", *arguments)) as made:
                    output = made.nodes[0].process.stdout.read()
                    self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
                    self.assertEqual([line["token_ids"] for line in json_lines(output)], self.expected)

    def test_a_process_that_is_killed_ends_the_other(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), serving_nodes(**layout, env=self.two_gpus()) as made:
                answer = made.answer_beside(made.nodes[1].process.kill, max_tokens=1500)
                self.assertTrue(answer.count("node 1 has gone"), answer[-400:])
                self.assertEqual(made.nodes[0].wait(), 1, made.nodes[0].log)
            with self.subTest(layout=layout, idle=True), serving_nodes(**layout, env=self.two_gpus()) as made:
                made.serving()
                self.assertTrue(made.complete("define apple"))
                made.nodes[0].process.kill()
                self.assertEqual(made.nodes[1].wait(), 1, made.nodes[1].log)

    def two_gpus(self):
        """The environment of processes that have a GPU each."""
        if where("--tensor-parallel-size", 2)[0] != "cuda":
            self.skipTest("there are no two GPUs here")
        return {"QUIRE_CUDA_LIBRARY": os.environ.get("QUIRE_CUDA_LIBRARY")}

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
