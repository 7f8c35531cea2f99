"""Memory that requests take of `quire serve`: budgets, refusals, and what comes back to the system."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import resource
import socket
import time
import unittest

from server_support import Server, serving
from support import CliTest

MIB = 1 << 20
# Sanitizers keep freed memory and reserve address space of their own.
SANITIZED = bool(os.environ.get("QUIRE_SANITIZE"))


class BudgetTest(CliTest):
    def test_a_request_that_could_never_fit_is_refused_with_the_figure(self):
        with serving("--max-server-memory", 64 * MIB) as server:
            status, _, body = server.post("/tokenize", {"prompt": "a" * (16 * MIB)})
            self.assertEqual(status, 413)
            self.assertRegex(body["error"]["message"], r"MiB of memory.*--max-server-memory")
            self.assertEqual(server.post("/tokenize", {"prompt": "define apple"})[0], 200)
            self.assertEqual(server.metrics()["quire:request_memory_bytes"], 0)
            self.assertEqual(server.metrics()["quire:request_memory_limit_bytes"], 64 * MIB)

    def test_an_answer_that_would_be_too_long_is_refused_before_the_work(self):
        with serving("--max-response-bytes", MIB) as server:
            body = {"prompt": [[5] * 500] * 16, "max_tokens": 1, "prompt_logprobs": 20}
            status, _, answer = server.post("/v1/completions", body)
            self.assertEqual(status, 400)
            self.assertRegex(answer["error"]["message"], r"about \d+ bytes.*--max-response-bytes")
            self.assertEqual(server.metrics()["quire:prompt_tokens_total"], 0)
            self.assertEqual(server.post("/v1/completions", {**body, "prompt": [5] * 500})[0], 200)

    def test_log_probabilities_of_many_prompts_take_no_more_than_there_is(self):
        prompts = {"prompt": [[5] * 2000] * 128, "max_tokens": 1, "prompt_logprobs": 20}
        with serving("--max-server-memory", 128 * MIB) as server:
            status, _, answer = server.post("/v1/completions", prompts)
            self.assertEqual(status, 413)
            self.assertRegex(answer["error"]["message"], r"MiB of memory with the log-probabilities of its prompt")
            self.assertEqual(server.metrics()["quire:prompt_tokens_total"], 0)

    @unittest.skipIf(SANITIZED, "sanitizers reserve address space")
    def test_under_a_limit_of_address_space_large_requests_end_and_nothing_else(self):
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1600 * MIB, before[1]))
        try:
            server = Server("--kv-cache-memory-bytes", 64 * MIB)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        self.addCleanup(server.kill)
        for size in (MIB, 8 * MIB, 31 * MIB):
            body = {"prompt": "a" * size, "return_token_strs": True}
            self.assertIn(server.post("/tokenize", body, timeout=600)[0], (200, 413, 429, 503))
            self.assertEqual(server.chat("define apple", max_tokens=4)[0], 200)
        self.assertEqual(server.stop(), 0)

    @unittest.skipIf(SANITIZED, "sanitizers reserve address space")
    def test_the_caches_default_size_fits_a_limit_of_address_space(self):
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1600 * MIB, before[1]))
        try:
            server = Server()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        self.addCleanup(server.kill)
        self.assertEqual(server.chat("define apple", max_tokens=4)[0], 200)
        prompts = {"prompt": [[5 + i] * 2000 for i in range(8)], "max_tokens": 1}
        self.assertIn(server.post("/v1/completions", prompts)[0], (200, 429, 503))
        self.assertEqual(server.stop(), 0)

    @unittest.skipIf(SANITIZED, "sanitizers have allocators of their own")
    def test_where_the_process_gets_no_more_memory_requests_end_and_nothing_else(self):
        with serving() as server:
            self.assertEqual(server.chat("define apple", max_tokens=4)[0], 200)
            before = resource.prlimit(server.process.pid, resource.RLIMIT_DATA)
            statuses = set()
            for slack in (0, 1, 4):
                taken = server.memory_kib("VmData") << 10
                resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (taken + slack * MIB, before[1]))
                try:
                    statuses |= self.statuses_of_a_crowd(server)
                finally:
                    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, before)
                self.assertEqual(server.chat("define apple", max_tokens=4)[0], 200)
                server.wait_until_idle()
            self.assertLessEqual(statuses, {200, 429, 503, None})
            self.assertEqual(server.stop(), 0)

    @staticmethod
    def statuses_of_a_crowd(server):
        """Of 16 answers at once; None where there was no memory to answer with."""
        def one(number):
            body = {"prompt": [5 + number] * 40, "max_tokens": 4, "n": 2, "logprobs": 5, "prompt_logprobs": 5,
                    "temperature": 1, "ignore_eos": True}
            try:
                return server.post("/v1/completions", body)[0]
            except (OSError, http.client.HTTPException):
                return None
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            return set(pool.map(one, range(16)))


class BodiesTest(CliTest):
    """Bodies that do not become an answer."""

    @staticmethod
    def begin_body(server, sent, source="127.0.0.1"):
        client = socket.create_connection((server.host, server.port), source_address=(source, 0))
        client.sendall(f"POST /tokenize HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
                       f"Content-Type: application/json\r\nContent-Length: {31 * MIB}\r\n\r\n".encode())
        try:
            client.sendall(b"a" * sent)
        except OSError:
            pass  # refused before the end
        return client

    def test_bodies_of_one_address_leave_others_half(self):
        with serving("--max-server-memory", 128 * MIB, "--kv-cache-memory-bytes", 16 * MIB) as server:
            clients = [self.begin_body(server, 30 * MIB) for _ in range(6)]
            server.wait_for(lambda: server.metrics()["quire:request_memory_bytes"] == 2 * 30 * MIB, "2 bodies charged")
            clients.append(self.begin_body(server, 30 * MIB, "127.0.0.2"))
            server.wait_for(lambda: server.metrics()["quire:request_memory_bytes"] == 3 * 30 * MIB, "3 bodies charged")
            for client in clients:
                client.close()

    def test_bodies_still_being_sent_are_charged(self):
        with serving("--max-server-memory", 128 * MIB, "--kv-cache-memory-bytes", 16 * MIB) as server:
            before = server.memory_kib()
            clients = [self.begin_body(server, 30 * MIB, f"127.0.0.{2 + number % 4}") for number in range(12)]
            server.wait_for(lambda: server.metrics()["quire:request_memory_bytes"] == 4 * 30 * MIB,
                            "4 bodies charged")
            for client in clients[4:]:
                client.settimeout(60)
                answer = client.recv(4096)
                self.assertTrue(answer.startswith(b"HTTP/1.1 429 "), answer)
                self.assertIn(b"Retry-After: 1", answer)
            if not SANITIZED:
                server.wait_for(lambda: server.memory_kib() < before + (128 + 16) * 1024, "memory of 4 bodies alone")
            self.assertEqual(server.post("/tokenize", {"prompt": "define apple"})[0], 200)
            for client in clients:
                client.close()
            server.wait_for(lambda: server.metrics()["quire:request_memory_bytes"] == 0, "no body charged")
            if not SANITIZED:
                server.wait_for(lambda: server.memory_kib() < before + 16 * 1024, "memory as before")

    @unittest.skipIf(SANITIZED, "sanitizers keep what is freed")
    def test_memory_of_what_is_refused_goes_back_to_the_system(self):
        many_keys = b"{" + b",".join(b'"k%d":0' % i for i in range(2_000_000)) + b',"prompt":"a"}'
        with serving("--kv-cache-memory-bytes", 16 * MIB) as server:
            self.assertEqual(server.post("/v1/completions", {"prompt": [[5] * 2000] * 4, "max_tokens": 1})[0], 200)
            before = server.memory_kib()
            most = before + 16 * 1024  # less than MemoryAccount::kMuchBytes may wait for others
            for path in ("/tokenize", "/v1/completions", "/v1/chat/completions"):
                for _ in range(4):
                    self.assertEqual(server.post(path, many_keys)[0], 400)
                server.wait_for(lambda: server.memory_kib() < most, f"less than {most} KiB after {path}")
            for _ in range(10):
                self.begin_body(server, 20 * MIB).close()
            server.wait_for(lambda: server.memory_kib() < most, f"less than {most} KiB after bodies broken off")


class LargeAnswerTest(CliTest):
    @unittest.skipIf(SANITIZED, "sanitizers keep what is freed")
    def test_memory_goes_back_to_the_system(self):
        with serving() as server:
            server.chat("define apple", max_tokens=4)
            server.post("/tokenize", {"prompt": "a" * 100_000, "return_token_strs": True})
            before = server.memory_kib()
            status, _, answer = server.post(
                "/tokenize", {"prompt": "a" * (8 * MIB), "return_token_strs": True}, timeout=600)
            self.assertEqual(status, 200)
            self.assertEqual(len(answer["tokens"]), answer["count"])
            self.assertEqual(len(answer["token_strs"]), answer["count"])
            self.assertEqual("".join(answer["token_strs"]), "a" * (8 * MIB))
            server.wait_for(lambda: server.memory_kib() < 1.1 * before, f"less than 1.1 x {before} KiB")

    def test_the_logs_time_goes_to_the_end_of_the_answer(self):
        waits_s = 0.4  # for more than the sockets hold
        requests = {"/tokenize": {"prompt": "a " * (2 * MIB), "return_token_strs": True},
                    "/v1/completions": {"prompt": [[5] * 1000] * 16, "max_tokens": 1, "prompt_logprobs": 20}}
        with serving("--log-format", "json") as server:
            for path, body in requests.items():
                connection = server.connect(timeout=600)
                with contextlib.closing(connection):
                    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    time.sleep(waits_s)
                    self.assertGreater(len(response.read()), 16 * MIB)
                server.wait_for(lambda: any(f'"{path}"' in line for line in server.lines), f"a line of {path}")
                line = json.loads(next(line for line in server.lines if f'"{path}"' in line))
                self.assertEqual(line["status"], 200)
                self.assertGreater(line["total_ms"], 1000 * waits_s)

    def test_answers_that_nobody_reads_are_counted_as_disconnects(self):
        with serving() as server:
            body = json.dumps({"prompt": "a " * (2 * MIB), "return_token_strs": True}).encode()
            head = (f"POST /tokenize HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
            for _ in range(3):
                client = socket.create_connection((server.host, server.port))
                client.sendall(head + body)
                self.assertTrue(client.recv(16).startswith(b"HTTP/1.1 200"))
                client.close()  # with most of the answer unread: a reset
            server.wait_for(lambda: server.metrics()["quire:client_disconnects_total"] == 3, "3 disconnects")
            server.wait_for(lambda: server.log.count("disconnected") == 3, "3 lines of the log that say so")
            self.assertEqual(server.metrics()["quire:request_memory_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
