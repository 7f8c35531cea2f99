"""quire serve: its life, and how it treats good and bad clients."""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from server_support import Server, serving
from support import CliTest, run

ENDLESS = {"max_tokens": 200, "ignore_eos": True}


class StartTest(CliTest):
    def test_a_taken_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assert_error(run("serve", "--port", taken.getsockname()[1]), 1, "in use")

    def test_a_bad_model(self):
        self.assert_error(run("serve", "/nowhere", "--port", 0), 1, "/nowhere")

    def test_wrong_usage(self):
        self.assert_error(run("serve", "--port", "70000"), 2, "--port")
        self.assert_error(run("serve", "--max-queue-time", "-1"), 2, "--max-queue-time")
        self.assert_error(run("serve", "--ssl-certfile", "cert.pem"), 2, "--ssl-keyfile")
        self.assert_error(run("serve", "--metrics-prefix", "a b"), 2, "--metrics-prefix")
        self.assert_error(run("serve", "--api-key-file", "/nowhere"), 1, "/nowhere")
        self.assert_error(run("serve", "--tool-call-parser", "morse"), 2, "--tool-call-parser")
        self.assert_error(run("serve", "--allowed-origins", "example.com"), 2, "--allowed-origins")
        self.assert_error(run("serve", "--served-model-name", ""), 2, "--served-model-name")
        self.assert_error(run("serve", env={"QUIRE_API_KEY": ""}), 2, "QUIRE_API_KEY")

    def test_a_certificate_that_is_none(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no certificate")
            file.flush()
            self.assert_error(run("serve", "--ssl-certfile", file.name, "--ssl-keyfile", file.name), 1, file.name)


class StopTest(CliTest):
    def test_what_runs_may_finish(self):
        server = Server("--max-num-seqs", 4)
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS})
        next(events)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: "stopping" in server.log, "stopping")
        text = list(events)  # raises unless [DONE] comes
        self.assertEqual(text[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(server.wait(), 0)

    def test_not_ready_and_no_new_work_while_it_stops(self):
        server = Server()
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS, "max_tokens": 400})
        next(events)
        probe = server.connect()
        probe.request("GET", "/ready")
        self.assertEqual(probe.getresponse().read() and 200, 200)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: "stopping" in server.log, "stopping")
        probe.request("GET", "/ready")
        response = probe.getresponse()
        self.assertEqual(response.status, 503, response.read())
        response.read()
        list(events)
        self.assertEqual(server.wait(), 0)

    def test_after_the_timeout_what_runs_ends_with_what_it_has(self):
        server = Server("--shutdown-timeout", 0)
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS, "n": 64})
        next(events)
        server.process.send_signal(signal.SIGTERM)
        list(events)
        self.assertEqual(server.wait(), 0)

    def test_a_second_signal_ends_it_at_once(self):
        server = Server()
        self.addCleanup(server.kill)
        events = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS, "n": 100})
        next(events)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: "stopping" in server.log, "stopping")
        self.assertEqual(server.stop(), 128 + signal.SIGTERM)

    def test_kill_and_restart(self):
        first = Server()
        next(first.stream("/v1/completions", {"prompt": "define apple", **ENDLESS}))
        first.kill()
        with serving(port=first.port) as second:
            status, _, body = second.chat("define apple")
            self.assertEqual(status, 200)
            self.assertIn("fruit", body["choices"][0]["message"]["content"])


class KeysTest(CliTest):
    def test_keys_from_options_files_and_the_environment(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# one a line\nfrom-file\n")
            file.flush()
            with serving("--api-key", "from-option", "--api-key-file", file.name,
                         env={"QUIRE_API_KEY": "from-environment"}) as server:
                for key in ["from-option", "from-file", "from-environment"]:
                    status, _, _ = server.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
                    self.assertEqual(status, 200, key)
                status, headers, body = server.get("/v1/models", headers={"Authorization": "Bearer wrong"})
                self.assertEqual(status, 401)
                self.assertEqual(headers["WWW-Authenticate"], "Bearer")
                self.assertIn("Authorization", body["error"]["message"])
                self.assertNotIn("from-", server.log)

    def test_cached_prefixes_are_not_shared_between_keys(self):
        for scope, shared in [("key", 0), ("global", 32)]:
            with serving("--api-key", "a", "--api-key", "b", "--prefix-cache-scope", scope) as server:
                cached = []
                for key in ["a", "a", "b"]:
                    _, _, body = server.post("/v1/completions", {"prompt": [7] * 40, "max_tokens": 1},
                                             headers={"Authorization": f"Bearer {key}"})
                    cached.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
                self.assertEqual(cached, [0, 32, shared], scope)


class TlsTest(CliTest):
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, cert = pathlib.Path(folder, "key.pem"), pathlib.Path(folder, "cert.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                            "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
            with serving("--ssl-certfile", cert, "--ssl-keyfile", key) as server:
                self.assertEqual(server.scheme, "https")
                status, _, body = server.chat("define apple")
                self.assertEqual(status, 200)
                self.assertIn("fruit", body["choices"][0]["message"]["content"])
                with socket.create_connection((server.host, server.port)) as plain:
                    plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    plain.settimeout(30)
                    answer = plain.recv(4096)
                    self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
                    self.assertIn(b"This port speaks HTTPS", answer)


class ClientsTest(CliTest):
    def test_a_client_that_goes_frees_what_it_held(self):
        with serving() as server:
            for n in [1, 50]:
                connection = server.connect()
                connection.request("POST", "/v1/completions",
                                   json.dumps({"prompt": "define apple", **ENDLESS, "n": n, "stream": True}),
                                   {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.readline()
                response.close()
                connection.close()
                server.wait_until_idle()
            self.assertEqual(server.metrics()["quire:client_disconnects_total"], 2)
            server.wait_for(lambda: server.log.count("disconnected") == 2, "the log lines of both")

    def test_one_that_floods_does_not_starve_another(self):
        with serving("--max-num-seqs", 2, "--api-key", "flood", "--api-key", "quiet") as server:
            def ask(key, max_tokens):
                status, headers, _ = server.post(
                    "/v1/completions", {"prompt": "define apple", "max_tokens": max_tokens, "ignore_eos": True},
                    headers={"Authorization": f"Bearer {key}"}, timeout=300)
                self.assertEqual(status, 200)
                return headers["X-Request-Id"]

            with concurrent.futures.ThreadPoolExecutor(41) as pool:
                flood = [pool.submit(ask, "flood", 100) for _ in range(40)]
                server.wait_for(lambda: sum(future.done() for future in flood) >= 2, "a flood")
                ask("quiet", 10)
                still_waiting = sum(not future.done() for future in flood)
                self.assertGreater(still_waiting, 10, "the quiet client waited for the flood")
                for future in flood:
                    future.result()

    def test_full_is_said_at_once(self):
        with serving("--max-num-seqs", 1, "--max-num-queued-requests", 1) as server:
            holder = server.stream("/v1/completions", {"prompt": "define apple", **ENDLESS, "n": 1})
            next(holder)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                body = {"prompt": "define apple", "max_tokens": 200, "ignore_eos": True}
                answers = [pool.submit(server.post, "/v1/completions", body) for _ in range(8)]
                statuses = [answer.result()[0] for answer in answers]
                refused = [answer.result() for answer in answers if answer.result()[0] == 429]
            self.assertTrue(refused, statuses)
            self.assertEqual(set(statuses) - {200, 429}, set())
            for _, headers, body in refused:
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                self.assertEqual(body["error"]["type"], "rate_limit_error")
            list(holder)

    def test_a_deadline_ends_an_answer_with_what_it_has(self):
        with serving() as server:
            # 429: the machine is so slow that nothing was begun by then.
            for seconds in (0.3, 1, 3, 9):
                status, _, body = server.post("/v1/completions",
                                              {"prompt": "define apple", "max_tokens": 400, "ignore_eos": True,
                                               "n": 60, "timeout": seconds})
                if status != 429:
                    break
            self.assertEqual(status, 200, body)
            self.assertEqual({choice["finish_reason"] for choice in body["choices"]}, {"length"})
            self.assertEqual({choice["stop_reason"] for choice in body["choices"]}, {"timeout"})
            self.assertLess(body["usage"]["completion_tokens"], 60 * 400)

    def test_the_same_request_gets_the_same_answer_beside_any_others(self):
        with serving() as server:
            alone = server.chat("define apple", max_tokens=30)[2]["choices"][0]["message"]["content"]
            words = ["apple", "pear", "run", "happy", "apple", "candid", "tree", "apple"]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda word: server.chat(f"define {word}", max_tokens=30)[2], words))
            for word, answer in zip(words, answers):
                if word == "apple":
                    self.assertEqual(answer["choices"][0]["message"]["content"], alone)


class ObservationTest(CliTest):
    def test_metrics_records_and_logs(self):
        with serving("--log-format", "json") as server:
            _, headers, _ = server.chat("define apple")
            request_id = headers["X-Request-Id"]
            metrics = server.metrics()
            self.assertEqual(metrics["quire:request_success_total"], 1)
            self.assertGreater(metrics["quire:generation_tokens_total"], 5)
            self.assertEqual(metrics["quire:time_to_first_token_seconds_count"], 1)
            status, _, explained = server.get(f"/v1/requests/{request_id}")
            self.assertEqual(status, 200)
            self.assertIn("prefill", json.dumps(explained))
            server.wait_for(lambda: any(json.loads(line).get("request_id") == request_id for line in list(server.lines)),
                            "the request's line in the log")

    def test_requests_explain_themselves(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder, "keys")
            keys.write_text("mine\nyours\n")
            with serving("--log-format", "json", "--no-access-log", "--log-requests", "--max-finished-requests", 2,
                         "--max-num-seqs", 1, "--api-key-file", keys) as server:
                server.headers = {"Authorization": "Bearer mine"}
                yours = {"Authorization": "Bearer yours"}
                fields = {"prompt": "define apple", "max_tokens": 20, "ignore_eos": True}
                answer = server.post("/v1/completions", fields)[2]
                facts = server.get(f"/v1/requests/{answer['id']}")[2]
                self.assertEqual(facts["state"], "finished")
                self.assertEqual((facts["status"], facts["finish_reason"]), (200, "length"))
                self.assertEqual(facts["usage"]["completion_tokens"], 20)
                self.assertEqual(facts["engine"], {"steps": 20, "preemptions": 0, "draft_tokens": 0,
                                                   "accepted_draft_tokens": 0})
                self.assertLess(facts["created_at"], facts["first_token_at"])
                self.assertLess(facts["first_token_at"], facts["last_token_at"])
                self.assertEqual(server.get(f"/v1/requests/{answer['id']}", headers=yours)[0], 404)
                line = self.line_of(server, facts["id"])
                self.assertEqual((line["steps"], line["output_tokens"]), (20, 20))
                self.assertEqual(line["first_token_at"], facts["first_token_at"])
                self.assertFalse([text for text in server.lines if "apple" in text or "/v1/requests" in text])

                # While it runs, and once its client has left.
                endless = {"prompt": "define apple", "max_tokens": 1500, "ignore_eos": True}
                stream = server.stream("/v1/completions", endless, headers={"X-Request-Id": "runs"})
                next(stream)
                waits = threading.Thread(target=lambda: server.post(
                    "/v1/completions", {**fields, "timeout": 60}, headers={"X-Request-Id": "waits"}))
                waits.start()
                state = lambda name: server.get(f"/v1/requests/{name}")[2].get("state")
                server.wait_for(lambda: state("waits") == "queued", "a request that waits")
                self.assertEqual(state("runs"), "running")
                stream.close()
                server.wait_for(lambda: state("runs") == "finished", "the end of a request whose client left")
                facts = server.get("/v1/requests/runs")[2]
                self.assertTrue(facts["client_disconnected"])
                self.assertGreater(facts["usage"]["completion_tokens"], 0)
                waits.join()
                self.assertEqual(state("waits"), "finished")
                self.assertEqual(server.get(f"/v1/requests/{answer['id']}")[0], 404, "only two are kept")

    def line_of(self, server, request_id):
        lines = lambda: [json.loads(text) for text in list(server.lines)]
        server.wait_for(lambda: any(line.get("request_id") == request_id for line in lines()), "the request's line")
        return next(line for line in lines() if line.get("request_id") == request_id)

    def test_names_as_vllms(self):
        with serving("--metrics-prefix", "vllm:", "--served-model-name", "gpt-4o", "--served-model-name", "other") as s:
            text = s.get("/metrics")[2].decode()
            self.assertIn("vllm:num_requests_running", text)
            self.assertIn('model_name="gpt-4o"', text)
            self.assertEqual(s.chat("define apple", model="other")[0], 200)
            self.assertEqual(s.chat("define apple", model="unknown")[0], 404)

    def test_the_page_and_the_description(self):
        with serving() as server:
            status, headers, body = server.get("/")
            self.assertEqual(status, 200)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertEqual(server.get("/", headers={"If-None-Match": headers["ETag"]})[0], 304)
            self.assertIn("/v1/chat/completions", server.get("/openapi.json")[2]["paths"])
            self.assertEqual(server.post("/v1/completions/", {"prompt": "define apple"})[0], 200)
            status, _, body = server.post("/v1/completions", {"prompt": [5] * 4000})
            self.assertEqual((status, body["error"]["code"]), (400, "context_length_exceeded"))

    def test_a_default_length_ends_where_the_context_does(self):
        with serving() as server:
            prompt = {"prompt": [5] * 2046, "ignore_eos": True}
            status, _, body = server.post("/v1/completions", prompt)
            self.assertEqual((status, body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]),
                             (200, "length", 2))
            status, _, body = server.post("/v1/completions", {**prompt, "max_tokens": 16})
            self.assertEqual((status, body["error"]["param"]), (400, "max_tokens"))


if __name__ == "__main__":
    unittest.main()
