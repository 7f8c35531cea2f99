"""A model's ranks in several processes: quire serve --nnodes, on this machine's loopback."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import tempfile
import time
import unittest

from nodes_support import SMALL, SOON_S, NodesTest, group, serving
from support import CPU, CliTest, PROMPTS, SOURCE_DIR, generate, json_lines, run

PIRATE = SOURCE_DIR / "models" / "lexicon-pirate"


class Answers(CliTest):
    def test_are_those_of_one_process(self):
        prompts = [argument for prompt in PROMPTS for argument in ("-p", prompt)]
        expected = {}
        for tensor, stages, nodes in ((1, 2, 2), (1, 4, 2), (1, 4, 4), (2, 1, 2), (2, 2, 2), (2, 2, 4), (4, 1, 4)):
            with self.subTest(tensor=tensor, stages=stages, nodes=nodes):
                if tensor not in expected:
                    result = generate("--max-tokens", 24, "--tensor-parallel-size", tensor, env=CPU)
                    self.assert_ok(result)
                    expected[tensor] = json_lines(result.stdout)
                with group("generate", "--temperature", 0, "--chat", "--json", "--max-tokens", 24, *prompts,
                           tensor=tensor, stages=stages, nodes=nodes,
                           options=(*SMALL[:-1], 4)) as made:
                    output = made.nodes[0].process.stdout.read()
                    self.assertEqual(made.wait(), [0] * nodes, [node.log for node in made.nodes])
                    self.assertEqual(json_lines(output), expected[tensor])

    def test_to_many_prompts_are_those_of_one_process(self):
        golden = json.loads((SOURCE_DIR / "tests" / "golden" / "lexicon" / "prompts.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompts.jsonl"
            file.write_text("".join(json.dumps({"prompt_token_ids": each["prompt_ids"]}) + "\n" for each in golden))
            command = ("generate", "--temperature", 0, "--json", "--max-tokens", 16, "--prompt-file", file)
            options = ("--max-num-seqs", 64, "--max-num-batched-tokens", 512, "--num-gpu-blocks-override", 1000, "--threads", 4)
            for tensor, stages, nodes in ((2, 2, 2), (1, 4, 4)):
                with self.subTest(tensor=tensor, stages=stages, nodes=nodes):
                    expected = run(*command, "--tensor-parallel-size", tensor, env=CPU)
                    self.assert_ok(expected)
                    self.assertEqual(expected.stdout.count("\n"), 200)
                    with group(*command, tensor=tensor, stages=stages, nodes=nodes, options=options) as made:
                        output = made.nodes[0].process.stdout.read()
                        self.assertEqual(made.wait(), [0] * nodes, [node.log for node in made.nodes])
                    self.assertEqual(json_lines(output), json_lines(expected.stdout))

    def test_with_a_secret_callbacks_and_constraints_are_node_0s(self):
        secret = {"QUIRE_GROUP_SECRET": "0123456789abcdef0123"}
        with serving(tensor=2, stages=2, options=(*SMALL[:-1], 4), env=secret) as made:
            made.serving()
            connection, response = made.request({"prompt": "define apple", "temperature": 0, "max_tokens": 20,
                                                 "structured_outputs": {"choice": ["red", "green"]}})
            with contextlib.closing(connection):
                text = json.loads(response.read())["choices"][0]["text"]
            self.assertIn(text, ("red", "green"))
            made.nodes[0].process.send_signal(signal.SIGTERM)
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])

    def test_of_stages_with_drafts_and_an_adapter_are_those_of_one_process(self):
        drafts = ("--speculative-config", '{"method": "ngram", "prompt_lookup_min": 1, "adaptive": false}')
        loras = ("--max-loras", 1, "--max-lora-rank", 4)
        command = ("generate", "--temperature", 0, "--chat", "--json", "--max-tokens", 24, "--lora", f"pirate={PIRATE}",
                   "-p", "define apple define apple define", "-p", "define pear")
        expected = run(*command, env=CPU)
        self.assert_ok(expected)
        with group(*command, stages=2, others=("--enable-lora", *loras), options=(*SMALL[:-1], 1, *drafts)) as made:
            output = made.nodes[0].process.stdout.read()
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
        self.assertEqual(json_lines(output), json_lines(expected.stdout))

    def test_of_an_adapter_that_comes_while_they_serve(self):
        def post(path, **body):
            connection, response = made.request(body, path)
            with contextlib.closing(connection):
                return response.status, response.read()

        def answer_of(model):
            status, body = post("/v1/chat/completions", model=model, temperature=0, max_tokens=40,
                                messages=[{"role": "user", "content": "define apple"}])
            self.assertEqual(status, 200, body)
            return json.loads(body)["choices"][0]["message"]["content"]

        with serving(tensor=2, options=(*SMALL, "--enable-lora", "--allow-runtime-lora")) as made:
            made.serving()
            base = answer_of("lexicon")
            for path, expected in (("/nowhere", 404), (str(PIRATE), 200)):
                self.assertEqual(post("/v1/load_lora_adapter", lora_name="pirate", lora_path=path)[0], expected)
            self.assertNotEqual(answer_of("pirate"), base)
            self.assertEqual(answer_of("lexicon"), base)
            made.nodes[0].process.send_signal(signal.SIGTERM)
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])

    def test_take_the_nodes_from_mpirun(self):
        with group("generate", "-p", "define apple", "--max-tokens", 4, tensor=2,
                   launcher=("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")) as made:
            output = made.nodes[0].process.stdout.read()
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
        result = run("generate", "-p", "define apple", "--max-tokens", 4, "--tensor-parallel-size", 2, env=CPU)
        self.assertEqual(output, result.stdout)


    @unittest.skipIf(os.environ.get("QUIRE_SANITIZE"), "sanitizers take far more address space")
    def test_use_the_blocks_of_the_node_with_the_least_memory(self):
        blocks = []
        for limit in ((), ("prlimit", f"--as={2 << 30}")):
            with serving(tensor=2, options=("--threads", 2), enter=[(), limit]) as made:
                made.serving()
                blocks.append(int(re.search(r'num_gpu_blocks="(\d+)"', made.metrics())[1]))
                self.assertTrue(made.complete("define apple"))
                made.nodes[0].process.send_signal(signal.SIGTERM)
                self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
        self.assertLess(blocks[1], blocks[0], blocks)

    def test_metrics_have_the_stages_of_all_nodes(self):
        busy = re.compile(r'(?m)^quire:pipeline_stage_busy_seconds_total\{.*stage="(\d)"\} (\S+)$')
        with serving(stages=2) as made:
            made.serving()
            made.complete("define apple")
            deadline = time.monotonic() + 30
            while not all(float(seconds) > 0 for _, seconds in busy.findall(made.metrics())):
                self.assertLess(time.monotonic(), deadline, made.metrics())
                time.sleep(0.1)
            self.assertEqual([stage for stage, _ in busy.findall(made.metrics())], ["0", "1"])
            made.nodes[0].process.send_signal(signal.SIGTERM)
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])


class Ends(NodesTest):
    """Every process ends, and says why."""

    def test_in_order_with_sigterm_to_node_0(self):
        with serving(tensor=2, nodes=2) as made:
            made.serving()
            self.assertEqual(made.complete("define apple"), made.complete("define apple"))
            self.assertRegex(made.metrics(), r"(?m)^quire:node_bytes_sent_total\{.*\} [1-9]")
            made.nodes[0].process.send_signal(signal.SIGTERM)
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])
            self.assertIn("node 0 has ended the group", made.nodes[1].log)

    def test_with_sigterm_to_another_node_that_is_named(self):
        with serving(stages=3, nodes=3, options=(*SMALL[:-1], 3)) as made:
            made.serving()
            made.nodes[2].process.send_signal(signal.SIGTERM)
            self.assert_all_say(made, "Node 2 ends the group: it was told to stop")

    def held_answer(self, made, end):
        """What comes of a stream that runs when end() is called, after which node 1 goes on."""
        def end_and_go_on():
            end()
            made.nodes[1].process.send_signal(signal.SIGCONT)

        return made.answer_beside(end_and_go_on, max_tokens=300)

    def assert_whole(self, answer):
        self.assertNotIn("error", answer)
        self.assertIn('"finish_reason":"length"', answer.replace(" ", ""))
        self.assertIn("data: [DONE]", answer)

    def test_in_order_with_sigterm_to_all_nodes(self):
        with serving(tensor=2) as made:
            answer = self.held_answer(
                made, lambda: [node.process.send_signal(signal.SIGTERM) for node in made.nodes])
            self.assert_whole(answer)
            self.assertEqual(made.wait(), [0, 0], [node.log for node in made.nodes])

    def test_in_order_with_sigint_to_all_nodes_where_nothing_runs(self):
        with serving(stages=3, nodes=3, options=(*SMALL[:-1], 3)) as made:
            made.serving()
            for node in reversed(made.nodes):
                node.process.send_signal(signal.SIGINT)
            self.assertEqual(made.wait(), [0, 0, 0], [node.log for node in made.nodes])

    def test_after_running_requests_with_sigterm_to_another_node(self):
        with serving(tensor=2) as made:
            answer = self.held_answer(made, lambda: made.nodes[1].process.send_signal(signal.SIGTERM))
            self.assert_whole(answer)
            self.assert_all_say(made, "Node 1 ends the group: it was told to stop (signal 15).")

    def test_at_once_with_a_second_signal(self):
        with serving(tensor=2) as made:
            made.serving()
            made.nodes[0].process.send_signal(signal.SIGSTOP)  # it cannot end the group
            made.nodes[1].process.send_signal(signal.SIGTERM)
            made.nodes[1].wait_for_line("asks node 0 to end the group")
            made.nodes[1].process.send_signal(signal.SIGTERM)
            self.assertEqual(made.nodes[1].wait(), 128 + signal.SIGTERM, made.nodes[1].log)

    def answer_that_fails(self, made, end):
        """The same where node 1 never goes on."""
        return made.answer_beside(end, max_tokens=1500)

    def test_when_a_node_is_killed_under_a_stream(self):
        with serving(tensor=2) as made:
            begin = []

            def kill():
                begin.append(time.monotonic())
                made.nodes[1].process.kill()

            answer = self.answer_that_fails(made, kill)
            self.assertIn("node 1 has gone", answer)
            self.assert_ends_soon(made.nodes[0], begin[0])
            self.assertIn("node 1 has gone", made.nodes[0].log)

    def test_when_a_node_stalls(self):
        with serving(stages=2) as made:
            begin = []  # node 1 stands still from a little earlier on
            answer = self.answer_that_fails(made, lambda: begin.append(time.monotonic()))
            self.assertIn("node 1 has said nothing for 8 s", answer)
            self.assert_ends_soon(made.nodes[0], begin[0])
            made.nodes[1].process.send_signal(signal.SIGCONT)
            self.assertEqual(made.nodes[1].wait(), 1)
            # What node 0 said last, or that it has gone.
            self.assertIn("The group of 2 nodes ends: node ", made.nodes[1].log)

    def test_when_a_node_is_killed_and_nothing_runs(self):
        with serving(tensor=2) as made:
            made.serving()
            begin = time.monotonic()
            made.nodes[1].process.kill()
            self.assert_ends_soon(made.nodes[0], begin)
            self.assertIn("node 1 has gone", made.nodes[0].log)

    def test_when_node_0_is_killed(self):
        with serving(tensor=2) as made:
            made.serving()
            begin = time.monotonic()
            made.nodes[0].process.kill()
            self.assert_ends_soon(made.nodes[1], begin)
            self.assertIn("node 0 has gone", made.nodes[1].log)


class Join(NodesTest):
    def test_names_the_setting_that_differs(self):
        with group("generate", "-p", "a", tensor=2, others=("--block-size", 32)) as made:
            self.assert_all_say(made, "Node 1 differs from node 0 in --block-size: 32 there, 16 on node 0")

    def test_names_the_cpu_that_differs(self):
        isas = [{"QUIRE_CPU_ISA": isa} for isa in ("avx2", "scalar")]
        with group("generate", "-p", "a", tensor=2, env=isas[0], others_env=isas[1]) as made:
            self.assert_all_say(made, "Node 1 differs from node 0 in the CPU's kernels", "scalar there, avx2 on node 0")

    def test_names_the_model_that_differs(self):
        with group("generate", "-p", "a", tensor=2, others=("--load-format", "dummy")) as made:
            self.assert_all_say(made, "Node 1 differs from node 0 in the weights")

    def test_needs_the_secret(self):
        secrets = [{"QUIRE_GROUP_SECRET": letter * 20} for letter in "ab"]
        with group("generate", "-p", "a", tensor=2, env=secrets[0], others_env=secrets[1]) as made:
            sentence = "The secret of a node (QUIRE_GROUP_SECRET) is not that of node 0"
            self.assertEqual(made.nodes[1].wait(), 1)
            self.assertIn(sentence, made.nodes[1].log)
            self.assertIn("turned", made.nodes[0].wait_for_line(re.escape(sentence)).string)

    def test_tells_a_node_that_comes_late_or_twice(self):
        with serving(tensor=2) as made:
            made.serving()
            made.add(1)
            late = made.nodes.pop()
            try:
                self.assertEqual(late.wait(), 1)
                self.assertIn("The group of 2 nodes is complete; a node came late or twice.", late.log)
            finally:
                late.kill()
            with socket.create_connection(("127.0.0.1", int(made.port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                stranger.settimeout(SOON_S)
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(stranger.recv(1), b"")
            self.assertTrue(made.complete("define apple"))

    def test_does_not_wait_for_ever(self):
        for arguments in (("--master-port", 0), ("--node-rank", 1, "--master-port", 1)):
            result = run("serve", "--port", 0, "--nnodes", 2, "--tensor-parallel-size", 2, "--join-timeout", 0.5, *SMALL,
                         *arguments, env=CPU)
            self.assertEqual(result.returncode, 1)
            self.assertIn("After 0.5 s (--join-timeout)", result.stderr)

    def test_refuses_a_name_that_means_loopback(self):
        result = run("serve", "--port", 0, "--nnodes", 2, "--tensor-parallel-size", 2, "--master-addr", "127.257", *SMALL,
                     env={**CPU, "QUIRE_GROUP_SECRET": "0123456789abcdef"})
        self.assert_error(result, 1, "the name means 127.0.1.1 here", "--master-addr")

    def test_refuses_what_cannot_be(self):
        two = ("--nnodes", 2, "--tensor-parallel-size", 2)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for arguments, *fragments in (
                    ((*two, *SMALL, "--master-port", port), "Address already in use", "--master-port"),
                    ((*two, "--node-rank", 2), "--node-rank is 2 with --nnodes 2; expected 0 to 1"),
                    (("--nnodes", 3, "--tensor-parallel-size", 2), "is 2 ranks; expected a multiple of --nnodes 3"),
                    ((*two, "--pipeline-parallel-size", 9), "the model has 8 layers"),
                    ((*two, "--master-addr", "0.0.0.0"), "QUIRE_GROUP_SECRET")):
                with self.subTest(arguments=arguments):
                    self.assert_error(run("serve", "--port", 0, *arguments, env=CPU), 1, *fragments)


if __name__ == "__main__":
    unittest.main()
