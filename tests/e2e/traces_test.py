"""quire serve --otlp-traces-endpoint: spans that reach a collector, and one that is not there."""

import contextlib
import http.server
import json
import socket
import threading
import unittest

from server_support import serving
from support import CliTest, run

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP's traces in JSON."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.spans = []
        self.services = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class CollectorHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces", self.path
        assert self.headers["Content-Type"] == "application/json"
        for resource in body["resourceSpans"]:
            attributes = {item["key"]: item["value"] for item in resource["resource"]["attributes"]}
            self.server.services.add(attributes["service.name"]["stringValue"])
            for scope in resource["scopeSpans"]:
                self.server.spans += scope["spans"]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collecting():
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


def attributes_of(span):
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


class TracesTest(CliTest):
    def test_each_generation_is_a_span(self):
        with collecting() as collector:
            with serving("--otlp-traces-endpoint", collector.url) as server:
                traced = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
                fields = {"prompt": "define apple", "max_tokens": 8, "ignore_eos": True, "temperature": 0.5, "top_p": 0.9}
                answer = server.post("/v1/completions", fields, headers=traced)[2]
                for traceparent in (f"00-{TRACE}-{PARENT}-00", "00-nonsense"):
                    self.assertEqual(server.post("/v1/completions", fields, headers={"traceparent": traceparent})[0], 200)
                self.assertEqual(server.post("/v1/completions", {**fields, "n": 0})[0], 400)
                server.wait_for(lambda: len(collector.spans) >= 3, "three spans")
                server.wait_for(lambda: server.metrics()["quire:trace_spans_sent_total"] == 3, "the count of spans")
            spans = collector.spans
            self.assertEqual(len(spans), 3, "a trace that its client does not record has no span")
            self.assertEqual(collector.services, {"quire"})
            first = next(span for span in spans if span.get("parentSpanId"))
            self.assertEqual((first["name"], first["traceId"], first["parentSpanId"], first["traceState"]),
                             ("llm_request", TRACE, PARENT, "vendor=1"))
            attributes = attributes_of(first)
            self.assertEqual(f"cmpl-{attributes['gen_ai.request.id']}", answer["id"])
            self.assertEqual(int(attributes["gen_ai.usage.prompt_tokens"]), answer["usage"]["prompt_tokens"])
            self.assertEqual(attributes["gen_ai.usage.completion_tokens"], "8")
            self.assertEqual(attributes["gen_ai.request.max_tokens"], "8")
            self.assertEqual((attributes["gen_ai.request.temperature"], attributes["gen_ai.request.top_p"]), (0.5, 0.9))
            self.assertEqual(attributes["quire.steps"], "8")
            for name in ("time_in_queue", "time_to_first_token", "e2e", "time_in_model_prefill", "time_in_model_decode"):
                self.assertGreater(attributes[f"gen_ai.latency.{name}"], 0, name)
            self.assertLess(int(first["startTimeUnixNano"]), int(first["endTimeUnixNano"]))
            refused = [span for span in spans if attributes_of(span)["http.response.status_code"] == "400"]
            self.assertEqual(len(refused), 1)
            self.assertNotIn("apple", json.dumps(spans))

    def test_the_end_sends_what_waits(self):
        with collecting() as collector:
            with serving("--otlp-traces-endpoint", f"{collector.url}/v1/traces") as server:
                self.assertEqual(server.chat("define apple", max_tokens=1)[0], 200)
                self.assertEqual(server.stop(), 0)
            self.assertEqual(len(collector.spans), 1)

    def test_a_collector_that_is_not_there_or_silent_harms_nobody(self):
        with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as silent:
            closed.bind(("127.0.0.1", 0))
            for address in (closed.getsockname(), silent.getsockname()):
                with serving("--otlp-traces-endpoint", f"http://127.0.0.1:{address[1]}") as server:
                    for _ in range(5):
                        self.assertEqual(server.chat("define apple", max_tokens=1)[0], 200)
                    self.assertEqual(server.stop(), 0)
                    self.assertIn(f"traces for http://127.0.0.1:{address[1]}/v1/traces", server.log)
                    self.assertIn("spans lost: ", server.log)

    def test_a_wrong_address(self):
        self.assert_error(run("serve", "--otlp-traces-endpoint", "localhost:4318"), 2, "--otlp-traces-endpoint")


if __name__ == "__main__":
    unittest.main()
