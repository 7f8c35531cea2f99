"""quire bench serve, against a server that behaves as each test wants."""

import asyncio
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from mock_openai import MockServer, answer, event, text_event, usage_event
from server_support import serving
from support import BINARY, SOURCE_DIR, CliTest, run

SMALL = ("--input-len", "4:8", "--output-len", "3:6")
STATISTICS = ("mean", "std", "median", "p90", "p95", "p99", "max")


def expected_work(count, seed=0, vocab_size=10001):
    """What `quire bench throughput` runs for these lengths."""
    from random import Random

    random = Random(seed)
    prompts = [[random.randint(0, 10000) % vocab_size for _ in range(random.randint(4, 8))] for _ in range(count)]
    return prompts, [random.randint(3, 6) for _ in range(count)]


class BenchServeTest(CliTest):
    def bench(self, server, *arguments, **options):
        return run("bench", "serve", "--base-url", server.url, *arguments, **options)

    def figures(self, result, code=0):
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def dataset(self, *lines):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "data.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path


class Work(BenchServeTest):
    def test_is_that_of_bench_throughput(self):
        with MockServer() as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "20", "--json"))
        prompts, lengths = expected_work(20)
        bodies = [call.body for call in server.calls]
        self.assertCountEqual([(body["prompt"], body["max_tokens"]) for body in bodies], zip(prompts, lengths))
        for body in bodies:
            self.assertEqual((body["model"], body["stream"], body["stream_options"]),
                             ("mock", True, {"include_usage": True}))
            self.assertEqual((body["temperature"], body["ignore_eos"]), (0.6, True))
        self.assertEqual({call.path for call in server.calls}, {"/v1/completions"})
        self.assertEqual((figures["completed"], figures["failed"], figures["num_prompts"]), (20, 0, 20))
        self.assertEqual(figures["total_input_tokens"], sum(map(len, prompts)))
        self.assertEqual(figures["total_output_tokens"], sum(lengths))
        self.assertEqual(figures["output_tokens_counted_by"], "server")

    def test_a_seed_and_a_vocabulary(self):
        models = [{"id": "other", "meta": {"n_vocab": 7}}, {"id": "mine", "vocab_size": 100}]
        with MockServer(models=models) as server:
            self.figures(self.bench(server, *SMALL, "--num-prompts", "5", "--seed", "3", "--model", "mine", "--json"))
        prompts, _ = expected_work(5, seed=3, vocab_size=100)
        self.assertCountEqual([call.body["prompt"] for call in server.calls], prompts)
        self.assertEqual({call.body["model"] for call in server.calls}, {"mine"})

    def test_text_for_a_server_without_token_ids(self):
        with MockServer(takes_token_ids=False) as server:
            result = self.bench(server, *SMALL, "--num-prompts", "5", "--json")
        self.assertIn("takes no token ids", result.stderr)
        figures = self.figures(result)
        prompts, _ = expected_work(5)
        self.assertCountEqual([len(call.body["prompt"].split()) for call in server.calls], map(len, prompts))
        self.assertEqual(figures["total_input_tokens"], sum(map(len, prompts)))

    def test_the_chat_endpoint(self):
        with MockServer() as server:
            figures = self.figures(
                self.bench(server, *SMALL, "--num-prompts", "5", "--endpoint", "/v1/chat/completions", "--json"))
        self.assertEqual({call.path for call in server.calls}, {"/v1/chat/completions"})
        self.assertEqual(server.calls[0].body["messages"][0]["role"], "user")
        self.assertEqual(figures["total_output_tokens"], sum(expected_work(5)[1]))

    def test_options_reach_the_server(self):
        with MockServer() as server:
            self.figures(self.bench(
                server, *SMALL, "--num-prompts", "2", "--api-key", "sesame", "--temperature", "0", "--top-k", "5",
                "--no-ignore-eos", "--extra-body", '{"priority": 3, "stop": ["x"]}', "--json"))
        for call in server.calls + server.other_calls:
            self.assertEqual(call.headers["authorization"], "Bearer sesame")
        body = server.calls[0].body
        self.assertEqual((body["temperature"], body["top_k"], body["priority"], body["stop"]), (0, 5, 3, ["x"]))
        self.assertFalse(body.get("ignore_eos"))

    def test_the_key_of_the_environment(self):
        with MockServer() as server:
            self.figures(self.bench(server, *SMALL, "--num-prompts", "1", "--json", env={"OPENAI_API_KEY": "open"}))
        self.assertEqual(server.calls[0].headers["authorization"], "Bearer open")

    def test_warm_up_is_not_measured(self):
        with MockServer() as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "5", "--warmup", "3", "--json"))
        self.assertEqual((len(server.calls), figures["completed"]), (8, 5))
        prompts, _ = expected_work(5)
        self.assertTrue(all(call.body["prompt"] not in prompts for call in server.calls[:3]))


class Dataset(BenchServeTest):
    def test_lines_go_where_they_belong(self):
        path = self.dataset({"prompt": "one two", "max_tokens": 2}, {"prompt_token_ids": [1, 2, 3]},
                            {"messages": [{"role": "user", "content": "hi"}], "top_p": 0.5})
        with MockServer() as server:
            figures = self.figures(
                self.bench(server, "--dataset", path, "--max-tokens", "4", "--max-concurrency", "1", "--json"))
        text, ids, chat = [call.body for call in server.calls]
        self.assertEqual([call.path for call in server.calls],
                         ["/v1/completions", "/v1/completions", "/v1/chat/completions"])
        self.assertEqual((text["prompt"], text["max_tokens"]), ("one two", 2))
        self.assertEqual((ids["prompt"], ids["max_tokens"]), ([1, 2, 3], 4))
        self.assertEqual((chat["messages"][0]["content"], chat["top_p"]), ("hi", 0.5))
        self.assertNotIn("ignore_eos", text)
        self.assertEqual((figures["completed"], figures["total_output_tokens"]), (3, 10))

    def test_repeats_its_lines(self):
        path = self.dataset({"prompt": "a"}, {"prompt": "b"})
        with MockServer() as server:
            self.figures(self.bench(server, "--dataset", path, "--num-prompts", "5", "--max-concurrency", "1",
                                    "--max-tokens", "1", "--json"))
        self.assertEqual([call.body["prompt"] for call in server.calls], ["a", "b", "a", "b", "a"])

    def test_bad_lines(self):
        with MockServer() as server:
            for line, fragment in [({"prompt": 5}, "prompt"), ({"prompt": "a", "expected": 1}, "expected"),
                                   ({"prompt": "a", "max_token": 1}, "max_tokens"), ({}, "no prompt")]:
                path = self.dataset({"prompt": "a"}, line)
                self.assert_error(self.bench(server, "--dataset", path), 1, "data.jsonl line 2", fragment)
            path = self.dataset({"messages": [{"role": "user", "content": "a"}]})
            self.assert_error(self.bench(server, "--dataset", path, "--endpoint", "/v1/completions"), 1, "messages")
            self.assert_error(self.bench(server, "--dataset", path.parent), 1, str(path.parent))
            self.assert_error(self.bench(server, "--dataset", path.parent / "none"), 1, "none")

    def test_texts_that_differ_are_failures(self):
        async def fickle(call, reply):
            text = "good" if call.number != 7 else "goad"
            await reply.start_stream()
            await reply.chunk(text_event(text) + usage_event(1, 1) + "data: [DONE]\n\n")
            await reply.end_stream()

        path = self.dataset({"prompt": "a"}, {"prompt": "b"})
        arguments = ("--dataset", path, "--num-prompts", "10", "--max-concurrency", "1", "--json")
        with MockServer(fickle) as server:
            figures = self.figures(self.bench(server, *arguments, "--expect-identical"), code=1)
        self.assertEqual((figures["completed"], figures["failed"], figures["mismatched"]), (9, 1, 1))
        self.assertEqual(figures["mismatches"], [{"prompt": 1, "byte": 2, "expected": "good", "got": "goad"}])
        with MockServer(fickle) as server:
            self.assertEqual(self.figures(self.bench(server, *arguments))["completed"], 10)

    def test_texts_that_are_expected(self):
        path = self.dataset({"prompt": "a", "max_tokens": 2, "expected": "w0 w1 "},
                            {"prompt": "b", "max_tokens": 2, "expected": "w0 w2 "})
        with MockServer() as server:
            figures = self.figures(self.bench(server, "--dataset", path, "--json"), code=1)
        self.assertEqual((figures["completed"], figures["mismatched"]), (1, 1))
        self.assertNotIn("expected", server.calls[0].body)


class Load(BenchServeTest):
    @staticmethod
    async def slow(call, reply):
        await answer(call, reply, delay_s=0.01)

    def test_keeps_to_the_limit_and_its_connections(self):
        with MockServer(self.slow) as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "30", "--max-concurrency", "4", "--json"))
        self.assertEqual(server.peak, 4)
        self.assertEqual((figures["max_concurrency"], figures["max_concurrent_requests"]), (4, 4))
        self.assertEqual(len(server.calls), 30)
        # Two more for the questions before the run.
        self.assertLessEqual(server.connections, 4 + 3)

    def test_all_at_once(self):
        gathered = asyncio.Event()

        async def together(call, reply):
            if call.running == 300:
                gathered.set()
            await gathered.wait()
            await answer(call, reply)

        with MockServer(together) as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "300", "--json"))
        self.assertEqual((server.peak, figures["max_concurrent_requests"], figures["completed"]), (300, 300, 300))

    def test_a_rate_is_seeded(self):
        def gaps(seed):
            with MockServer() as server:
                figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "12", "--request-rate", "40",
                                                  "--seed", seed, "--json"))
            self.assertEqual(figures["request_rate"], 40)
            return figures["duration"]

        # Times are no test's business, but no run can end before its last request has arrived.
        self.assertGreater(min(gaps("1"), gaps("2")), 0.05)

    def test_a_duration(self):
        # More answers than there are prompts, which takes longer on a slow machine.
        for seconds in (1, 5, 25):
            with MockServer() as server:
                figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "3", "--max-concurrency", "2",
                                                  "--duration", str(seconds), "--json"))
            self.assertGreaterEqual(figures["duration"], seconds)
            self.assertEqual(figures["completed"], len(server.calls))
            self.assertLessEqual(len({json.dumps(call.body) for call in server.calls}), 3)
            self.assertLessEqual(server.peak, 2)
            if figures["completed"] > 3:
                break
        self.assertGreater(figures["completed"], 3)

    def test_an_interrupt_prints_what_was_measured(self):
        async def two_then_none(call, reply):
            if call.number < 2:
                await answer(call, reply)
            else:
                process.send_signal(signal.SIGINT)
                await asyncio.sleep(3600)

        with MockServer(two_then_none) as server:
            process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", server.url, *SMALL, "--num-prompts", "9",
                                        "--max-concurrency", "1", "--json"], stdout=subprocess.PIPE, text=True)
            output, _ = process.communicate(timeout=60)
        figures = json.loads(output)
        self.assertEqual(process.returncode, 130)
        self.assertEqual((figures["completed"], figures["interrupted"], figures["failed"]), (2, 1, 0))


class Figures(BenchServeTest):
    def test_every_key_is_documented(self):
        with MockServer() as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "2", "--json"))
        text = (SOURCE_DIR / "docs" / "benchmarking.md").read_text()
        for key in figures:
            statistic, _, latency = key.removesuffix("_ms").partition("_")
            if key.endswith("_ms") and statistic in STATISTICS:
                self.assertIn(f"`{latency}`", text)
                self.assertIn(f"`{statistic}_`", text)
            else:
                self.assertIn(f"`{key}`", text)

    def test_latencies(self):
        async def paced(call, reply):
            await answer(call, reply, delay_s=0.02)

        with MockServer(paced) as server:
            figures = self.figures(self.bench(server, "--input-len", "4", "--output-len", "5", "--num-prompts", "3",
                                              "--json"))
        for name in ("ttft", "tpot", "itl", "e2el"):
            ordered = [figures[f"{statistic}_{name}_ms"] for statistic in ("median", "p90", "p95", "p99", "max")]
            self.assertEqual(ordered, sorted(ordered))
        # Five waits of 20 ms come before the end; what one event was late, the next comes sooner.
        self.assertGreaterEqual(figures["mean_ttft_ms"], 20)
        self.assertGreaterEqual(figures["mean_e2el_ms"], 5 * 20)
        self.assertGreater(figures["mean_tpot_ms"], 0)
        self.assertAlmostEqual(figures["mean_tpot_ms"], figures["mean_itl_ms"], delta=1e-5)
        self.assertLessEqual(figures["mean_ttft_ms"] + 4 * figures["mean_tpot_ms"], figures["mean_e2el_ms"])
        for name in ("request_throughput", "output_throughput", "total_token_throughput"):
            self.assertGreater(figures[name], 0)

    def test_without_usage_events_are_counted(self):
        async def silent(call, reply):
            await answer(call, reply, usage=False)

        arguments = (*SMALL, "--num-prompts", "5")
        with MockServer(silent) as server:
            figures = self.figures(self.bench(server, *arguments, "--json"))
            table = self.bench(server, *arguments)
        prompts, lengths = expected_work(5)
        self.assertEqual(figures["output_tokens_counted_by"], "events")
        self.assertEqual(figures["total_output_tokens"], sum(lengths))
        self.assertEqual(figures["total_input_tokens"], sum(map(len, prompts)))
        self.assertIn("one for each event", table.stdout)

    def test_a_table_and_a_file(self):
        with tempfile.TemporaryDirectory() as folder, MockServer() as server:
            path = pathlib.Path(folder) / "result.json"
            result = self.bench(server, *SMALL, "--num-prompts", "5", "--save-result", path)
            self.assert_ok(result)
            saved = json.loads(path.read_text())
            bad = self.bench(server, *SMALL, "--num-prompts", "1", "--save-result", pathlib.Path(folder))
        self.assertEqual(saved["completed"], 5)
        for label in ("successful requests", "output throughput", "time to first token", "inter-token latency", "p99"):
            self.assertIn(label, result.stdout)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("cannot write", bad.stderr)

    def test_a_stream_as_others_write_it(self):
        async def other(call, reply):
            await reply.start_stream("text/event-stream; charset=utf-8")
            whole = (": ping\r\n\r\nevent: message\r\nid: 1\r\n" + text_event("a\u20ac").replace("\n\n", "\r\n\r\n") +
                     "data: {\"choices\":\r\ndata: [{\"text\": \"b\"}]}\r\n\r\n" + usage_event(4, 2) +
                     "data:[DONE]\n").encode()
            for byte in range(len(whole)):
                await reply.chunk(whole[byte:byte + 1])
            await reply.end_stream()

        path = self.dataset({"prompt": "x", "expected": "a\u20acb"})
        with MockServer(other) as server:
            figures = self.figures(self.bench(server, "--dataset", path, "--json"))
        self.assertEqual((figures["completed"], figures["total_output_tokens"]), (1, 2))


class Faults(BenchServeTest):
    def faulty(self, fault, *arguments, good=4, code=1):
        """Figures and standard error of a run whose first requests are `fault` and the last `good` ones fine."""
        async def handler(call, reply):
            await (fault if call.number < 6 else answer)(call, reply)

        with MockServer(handler) as server:
            result = self.bench(server, *SMALL, "--num-prompts", str(6 + good), "--max-concurrency", "1", "--json",
                                *arguments)
        figures = self.figures(result, code)
        return figures, result.stderr

    def assert_six_fail(self, fault, message, *arguments):
        figures, stderr = self.faulty(fault, *arguments)
        self.assertEqual((figures["completed"], figures["failed"]), (4, 6))
        self.assertEqual(list(figures["errors"].values()), [6])
        self.assertIn(message, list(figures["errors"])[0])
        self.assertRegex(stderr, r"quire: error: 6 of 10 requests failed, 6 of them with: .*\n\Z")
        self.assertEqual(figures["total_output_tokens"], sum(expected_work(10)[1][6:]))

    def test_an_error_status(self):
        async def fault(_, reply):
            await reply.error(500, "the engine is gone")
        self.assert_six_fail(fault, "HTTP 500: the engine is gone")

    def test_a_stream_cut_short(self):
        async def fault(_, reply):
            await reply.start_stream()
            await reply.chunk(text_event("a"))
            await reply.cut()
        self.assert_six_fail(fault, "the server closed the connection early")

    def test_a_connection_closed_without_an_answer(self):
        async def fault(_, reply):
            await reply.cut()
        self.assert_six_fail(fault, "the server closed the connection early")

    def test_a_stream_without_its_end(self):
        async def fault(_, reply):
            await reply.start_stream()
            await reply.chunk(text_event("a"))
            await reply.end_stream()
        self.assert_six_fail(fault, "the stream ended without [DONE]")

    def test_garbage(self):
        async def fault(_, reply):
            await reply.start_stream()
            await reply.chunk("data: {\"choices\": [\n\n")
            await reply.end_stream()
        self.assert_six_fail(fault, "no JSON object")

    def test_an_endless_line(self):
        async def fault(_, reply):
            await reply.start_stream()
            await reply.chunk("data: " + "x" * (5 << 20))
            await reply.end_stream()
        self.assert_six_fail(fault, "longer than 4 MiB")

    def test_an_error_in_the_stream(self):
        async def fault(_, reply):
            await reply.start_stream()
            await reply.chunk(text_event("a") + event(error={"message": "out of blocks"}))
            await reply.end_stream()
        self.assert_six_fail(fault, "the stream ended with an error: out of blocks")

    def test_an_answer_that_is_no_stream(self):
        async def fault(_, reply):
            await reply.whole(200, {"choices": [{"text": "a"}]})
        self.assert_six_fail(fault, "type 'application/json'")

    def test_a_server_that_hangs(self):
        async def fault(_, reply):
            await reply.start_stream()
            await asyncio.sleep(3600)
        # Time enough for the four that are answered.
        self.assert_six_fail(fault, "--timeout", "--timeout", "1")

    def test_too_many_requests(self):
        async def fault(_, reply):
            await reply.error(429, "the queue is full", ["Retry-After: 1"])
        figures, stderr = self.faulty(fault)
        self.assertEqual((figures["completed"], figures["failed"], figures["rejected"]), (4, 0, 6))
        self.assertEqual(figures["errors"], {"HTTP 429: the queue is full": 6})
        self.assertIn("6 of 10 requests failed", stderr)

    def test_retries(self):
        seen = {}

        async def busy_at_first(call, reply):
            times = seen.setdefault(json.dumps(call.body), [])
            times.append(time.monotonic())
            if len(times) == 1:
                await reply.error(429, "the queue is full", ["Retry-After: 1"])
            else:
                await answer(call, reply)

        with MockServer(busy_at_first) as server:
            figures = self.figures(self.bench(server, *SMALL, "--num-prompts", "5", "--retry-429", "--json"))
        self.assertEqual((figures["completed"], figures["rejected"], figures["retries"]), (5, 0, 5))
        self.assertTrue(all(second - first >= 1 for first, second in seen.values()))

    def test_retries_end(self):
        async def busy_for_longer(call, reply):
            await reply.error(429, "the queue is full", [f"Retry-After: {3600 if call.number else 1}"])

        # The second wait would end behind the time-out, so there is none.
        with MockServer(busy_for_longer) as server:
            figures = self.figures(
                self.bench(server, *SMALL, "--num-prompts", "1", "--retry-429", "--timeout", "60", "--json"), code=1)
        self.assertEqual((figures["rejected"], figures["retries"]), (1, 1))

    def test_no_server(self):
        with MockServer() as server:
            url = server.url
        self.assert_error(run("bench", "serve", "--base-url", url), 1, url, "is the server running")

    def test_a_server_that_goes_away(self):
        async def fault(_, reply):
            await reply.cut()
        with MockServer(fault) as server:
            figures = self.figures(self.bench(server, *SMALL, "--duration", "1", "--max-concurrency", "2", "--json"),
                                   code=1)
        self.assertEqual(figures["completed"], 0)
        self.assertEqual(figures["failed"], len(server.calls))
        self.assertLess(figures["failed"], 100, "it does not hammer a server that fails")

    def test_wrong_usage(self):
        for arguments, fragment in [(("--duration", "5"), "--max-concurrency"),
                                    (("--dataset", "x", "--input-len", "5"), "--dataset"),
                                    (("--max-tokens", "5"), "--output-len"),
                                    (("--request-rate", "0"), "--request-rate"),
                                    (("--num-prompts", "0"), "--num-prompts"),
                                    (("--endpoint", "/v1/x"), "--endpoint")]:
            self.assert_error(run("bench", "serve", *arguments), 2, fragment)
        self.assert_error(run("bench", "serve", "--base-url", "ftp://x"), 1, "ftp://x")
        with MockServer() as server:
            self.assert_error(self.bench(server, "--extra-body", "[1]"), 1, "--extra-body")


class OfQuire(BenchServeTest):
    """Against `quire serve` with the bundled model."""

    def test_does_the_work_of_bench_throughput(self):
        with serving() as server:
            result = run("bench", "serve", "--base-url", server.address, "--num-prompts", "24", "--input-len", "8:32",
                         "--output-len", "4:16", "--max-concurrency", "8", "--json")
        figures = self.figures(result)
        self.assertEqual(result.stderr, "")
        of_throughput = run("bench", "throughput", "--num-seqs", "24", "--input-len", "8:32", "--output-len", "4:16",
                            "--json")
        expected = self.figures(of_throughput)
        self.assertEqual((figures["completed"], figures["model_id"]), (24, "lexicon"))
        self.assertEqual(figures["total_input_tokens"], expected["prompt_tokens"])
        self.assertEqual(figures["total_output_tokens"], expected["output_tokens"])
        self.assertEqual(figures["output_tokens_counted_by"], "server")

    def test_every_stream_is_what_generate_says(self):
        prompts = [{"messages": [{"role": "user", "content": f"define {word}"}]} for word in
                   ("apple", "river", "candid", "run", "quire")]
        path = self.dataset(*prompts)
        generated = run("generate", "--prompt-file", path, "--temperature", "0", "--max-tokens", "24", "--json")
        self.assert_ok(generated)
        texts = [json.loads(line)["text"] for line in generated.stdout.splitlines()]
        path = self.dataset(*({**prompt, "expected": text} for prompt, text in zip(prompts, texts)))
        with serving() as server:
            figures = self.figures(run(
                "bench", "serve", "--base-url", server.address, "--dataset", path, "--temperature", "0", "--max-tokens",
                "24", "--num-prompts", "60", "--max-concurrency", "20", "--expect-identical", "--json"))
        self.assertEqual((figures["completed"], figures["mismatched"]), (60, 0))


if __name__ == "__main__":
    unittest.main()
