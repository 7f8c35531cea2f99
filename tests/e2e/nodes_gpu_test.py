"""A model's ranks on GPUs in several processes: simulated GPUs (tests/simulated_gpu), so that this runs anywhere."""

import contextlib
import json
import signal
import unittest

from nodes_support import SMALL, NodesTest, group, serving
from support import CPU, LEXICON, CliTest, PROMPTS, generate, gpus, json_lines, run

FLOAT32 = (*SMALL, "--dtype", "float32")


# GPUs of the other nodes do not reach node 0's memory.
ANOTHER_HOST = {"host": "another"}
# A node for each of two ranks, or of two stages.
LAYOUTS = ({"tensor": 2}, {"stages": 2})


def serving_on_gpus(**options):
    return serving(options=FLOAT32, **{"env": gpus(), **options})


class Answers(CliTest):
    def test_are_those_of_one_process(self):
        prompts = [argument for prompt in PROMPTS for argument in ("-p", prompt)]
        expected = {}
        for tensor, stages, nodes, arguments, settings in (
                (2, 1, 2, (), {}), (2, 1, 2, ("--enforce-eager",), {}), (2, 1, 2, (), {"pace": "lazy"}), (4, 1, 2, (), {}),
                (4, 1, 4, (), {}), (1, 2, 2, (), {}), (1, 2, 2, (), {"pace": "lazy"}), (2, 2, 2, ("--enforce-eager",), {}),
                (2, 2, 4, (), {"pace": "lazy"}), (1, 4, 2, (), {}), (2, 1, 2, (), ANOTHER_HOST), (4, 1, 2, (), ANOTHER_HOST)):
            with self.subTest(tensor=tensor, stages=stages, nodes=nodes, arguments=arguments, settings=settings):
                if tensor not in expected:
                    result = generate("--max-tokens", 24, "--dtype", "float32", "--tensor-parallel-size", tensor,
                                      env=gpus(tensor))
                    self.assert_ok(result)
                    expected[tensor] = json_lines(result.stdout)
                with group("generate", "--temperature", 0, "--chat", "--json", "--max-tokens", 24, *prompts,
                           tensor=tensor, stages=stages, nodes=nodes, options=(*FLOAT32, *arguments),
                           env=gpus(tensor * stages // nodes, **{**settings, "host": "one"}),
                           others_env=gpus(tensor * stages // nodes, **{"host": "one", **settings})) as made:
                    output = made.nodes[0].process.stdout.read()
                    self.assertEqual(made.wait(), [0] * nodes, [node.log for node in made.nodes])
                    self.assertEqual(json_lines(output), expected[tensor])
                    said = [line for line in made.nodes[0].lines if "between GPUs of several processes" in line]
                    self.assertEqual(len(said), 1, said)
                    if tensor * stages // nodes < tensor:
                        ways = "use NCCL only" if "host" in settings else "share GPU memory (CUDA IPC) and use NCCL"
                        self.assertIn(f"the ranks of a stage {ways}", said[0])
                    self.assertEqual("stages use NCCL" in said[0], stages > 1)

    def test_of_stages_with_drafts_are_those_without(self):
        command = ("generate", "--temperature", 0, "--chat", "--json", "--max-tokens", 24, "-p",
                   "define apple define apple define", "-p", "define pear")
        ngram = {"method": "ngram", "prompt_lookup_min": 1, "adaptive": False}
        head = {"method": "eagle3", "model": f"{LEXICON}-eagle3", "adaptive": False}
        expected = run(*command, "--dtype", "float32", env=gpus())
        self.assert_ok(expected)
        for stages, nodes, drafts in ((2, 2, ngram), (4, 2, ngram), (2, 2, head), (4, 2, head), (4, 4, head)):
            options = (*FLOAT32, "--speculative-config", json.dumps(drafts))
            with self.subTest(stages=stages, nodes=nodes, drafts=drafts), \
                    group(*command, stages=stages, nodes=nodes, options=options, env=gpus(stages // nodes)) as made:
                output = made.nodes[0].process.stdout.read()
                self.assertEqual(made.wait(), [0] * nodes, [node.log for node in made.nodes])
                self.assertEqual(json_lines(output), json_lines(expected.stdout))

    def test_of_stages_come_without_the_kernel_of_a_whole_step(self):
        command = ("generate", "--temperature", 0, "--max-tokens", 4, "-p", "define apple")
        kernel_fails = {"decoder_step": 1, "fault": "0:decoder_step:1"}
        one_process = run(*command, "--pipeline-parallel-size", 2, env=gpus(2, **kernel_fails))
        self.assert_error(one_process, 1, "illegal memory access")
        draft = {"method": "draft_model", "model": str(LEXICON), "num_speculative_tokens": 2, "adaptive": False}
        for options in ((), ("--speculative-config", json.dumps(draft))):
            with self.subTest(options=options), \
                    group(*command, stages=2, options=options, env=gpus(**kernel_fails)) as made:
                self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])

    def test_of_requests_that_come_and_go(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), serving_on_gpus(**layout) as made:
                made.serving()
                self.assertEqual(made.complete("define apple"), made.complete("define apple"))
                self.assertIn("choices", made.stream({"prompt": "define pear", "logprobs": 2, "max_tokens": 5}))
                for node in made.nodes:
                    node.process.send_signal(signal.SIGTERM)
                self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
                self.assertIn("node 0 has ended the group", made.nodes[1].log)


class Ends(CliTest):
    """Every process ends, and says why, also where a GPU waits for another process's."""

    def assert_ended(self, made, number, fragment):
        self.assertEqual(made.nodes[number].wait(), 1, made.nodes[number].log)
        self.assertIn(fragment, made.nodes[number].log)

    def test_when_a_node_is_killed_under_a_stream(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), serving_on_gpus(**layout) as made:
                answer = made.answer_beside(made.nodes[1].process.kill, max_tokens=1500)
                self.assertTrue(answer.count("node 1 has gone"), answer[-400:])
                self.assert_ended(made, 0, "node 1 has gone")

    def test_when_node_0_is_killed_under_a_stream(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), serving_on_gpus(**layout) as made:
                made.serving()
                connection, response = made.request({"prompt": "define apple", "max_tokens": 1500, "ignore_eos": True,
                                                     "stream": True})
                with contextlib.closing(connection):
                    self.assertTrue(response.readline())
                    made.nodes[0].process.kill()
                    self.assert_ended(made, 1, "node 0 has gone")

    def test_when_a_node_stalls(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), serving_on_gpus(**layout) as made:
                answer = made.answer_beside(lambda: None, max_tokens=1500)  # node 0's GPU waits for node 1's
                self.assertTrue(answer.count("node 1 has said nothing for 8 s"), answer[-400:])
                self.assert_ended(made, 0, "node 1 has said nothing for 8 s")
                made.nodes[1].process.send_signal(signal.SIGCONT)
                self.assert_ended(made, 1, "The group of 2 nodes ends: node ")

    def test_when_a_node_is_killed_and_nothing_runs(self):
        for killed, layout in enumerate(LAYOUTS):
            with self.subTest(killed=killed), serving_on_gpus(**layout) as made:
                made.serving()
                made.nodes[killed].process.kill()
                self.assert_ended(made, 1 - killed, f"node {killed} has gone")

    def test_when_a_gpu_fails(self):
        for failing in (0, 1):
            for layout in LAYOUTS:
                envs = [gpus(), gpus()]
                envs[failing] = gpus(fault="0:resolve_tokens:40")
                with self.subTest(failing=failing, layout=layout), \
                        serving_on_gpus(env=envs[0], others_env=envs[1], **layout) as made:
                    made.serving()
                    answer = made.stream({"prompt": "define apple", "max_tokens": 1500, "ignore_eos": True})
                    self.assertTrue(answer.count("illegal memory access"), answer[-400:])
                    for number in range(2):
                        self.assert_ended(made, number, "illegal memory access was encountered")


class Join(NodesTest):
    def test_names_the_device_that_differs(self):
        with group("generate", "-p", "a", tensor=2, env=gpus(), others_env=CPU, options=FLOAT32) as made:
            self.assert_all_say(made, "Node 1 differs from node 0 in what its ranks run on (--device): the CPU there, "
                                      "GPUs of compute capability 9.0 on node 0")
        with group("generate", "-p", "a", tensor=2, env=gpus(), others_env=gpus(capability=80), options=FLOAT32) as made:
            self.assert_all_say(made, "GPUs of compute capability 8.0 there, GPUs of compute capability 9.0 on node 0")

    def test_names_a_gpu_that_is_taken_twice(self):
        with group("generate", "-p", "a", tensor=2, env=gpus(machine=7), options=FLOAT32) as made:
            self.assert_all_say(made, "Nodes 0 and 1 both take GPU-07000000-0000-0000-0000-000000000000; expected a GPU of "
                                      "its own for each rank")

    def test_names_steps_that_differ_in_size(self):
        with group("generate", "-p", "a", tensor=2, env=gpus(), others=("--enforce-eager",), options=FLOAT32) as made:
            self.assert_all_say(made, "Node 1 differs from node 0 in --enforce-eager: given there, not given on node 0")

    def test_ends_with_a_node_that_cannot_start(self):
        with group("generate", "-p", "a", tensor=2, env=gpus(), others_env=gpus(fault="0:reserve:1"),
                   options=FLOAT32) as made:
            self.assert_all_say(made, "cuda:0 has not the ")
            self.assertIn("Node 1 has failed: ", made.nodes[0].log)


if __name__ == "__main__":
    unittest.main()
