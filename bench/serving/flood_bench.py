#!/usr/bin/env python3
"""How long one client's short request waits while another client floods the server.

    bench/serving/flood_bench.py [--visits N] [--flood NAME]... [LABEL=BINARY]...

starts `quire serve` of each binary (default: build/release/src/quire) with the bundled model and two keys. Key A
sends one kind of flood again and again; key B asks for one token, N times, at random moments. Prints B's time to the
first token, median and longest, in seconds and in steps of the engine, and the prompt tokens a second that the flood
gets meanwhile. Everything stays on loopback and ends with the script.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

NUM_PROMPTS = 128
PROMPT_TOKENS = 2000
VOCABULARY = 8000  # ids below are ordinary tokens of the bundled model
START_S = 60
REQUEST_S = 600
VISITOR_PROMPT = "define apple"


class Server:
    """`quire serve` on a free port of loopback."""

    def __init__(self, binary):
        self.process = subprocess.Popen(
            [binary, "serve", "--port", "0", "--no-access-log", "--api-key", "A", "--api-key", "B"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.port = None
        serving = threading.Event()

        def read():
            for line in self.process.stderr:
                if match := re.search(r"serving at http://127\.0\.0\.1:(\d+)", line):
                    self.port = int(match[1])
                    serving.set()
            serving.set()

        threading.Thread(target=read, daemon=True).start()
        if not serving.wait(START_S) or self.port is None:
            self.process.kill()
            raise SystemExit(f"{binary} did not start to serve")

    @contextlib.contextmanager
    def response(self, key, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body,
                               {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
            yield connection.getresponse()

    def metric(self, name):
        with self.response("A", "/metrics") as response:
            text = response.read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def stop(self):
        self.process.kill()  # not SIGTERM, which would wait for the flood
        self.process.wait()


def random_prompt():
    return [number % VOCABULARY for number in memoryview(os.urandom(4 * PROMPT_TOKENS)).cast("I")]


def one_request(num_prompts, **fields):
    """A flood's bodies: each a list of prompts."""
    def body():
        return json.dumps({"prompt": [random_prompt() for _ in range(num_prompts)], "max_tokens": 1,
                           "temperature": 0, **fields}).encode()
    return body


# Each: how many requests there are at a time, and what makes the body of the next.
FLOODS = {
    "one request of 128 x 2,000 tokens": (1, one_request(NUM_PROMPTS)),
    "32 requests of 2,000 tokens": (32, one_request(1)),
    "32 requests of 4 x 2,000, prompt_logprobs 20": (32, one_request(4, prompt_logprobs=20)),
}


class Flood:
    """Keeps a number of requests of key A going until it is stopped."""

    def __init__(self, server, num_requests, make_body):
        self.server = server
        self.make_body = make_body
        self.stopping = False
        self.refused = None
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(num_requests)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stopping:
            try:
                with self.server.response("A", "/v1/completions", self.make_body()) as response:
                    if response.status != 200:
                        self.refused = f"{response.status}: {response.read(500)!r}"
                        return
                    while response.read(1 << 20):
                        pass
            except (OSError, http.client.HTTPException):
                if not self.stopping:
                    raise


def time_to_first_token(server):
    body = {"prompt": VISITOR_PROMPT, "max_tokens": 1, "temperature": 0, "stream": True}
    begin = time.monotonic()
    with server.response("B", "/v1/completions", json.dumps(body).encode()) as response:
        if response.status != 200:
            raise SystemExit(f"B's request: {response.status}: {response.read(500)!r}")
        line = response.readline()
        while not line.startswith(b"data: {"):
            if not line:
                raise SystemExit("B's request ended without a token")
            line = response.readline()
    return time.monotonic() - begin


class Progress:
    """The engine's steps and prompt tokens since it was made."""

    def __init__(self, server):
        self.server = server
        self.begin = self.now()

    def now(self):
        return (time.monotonic(), self.server.metric("quire:iteration_tokens_total_count"),
                self.server.metric("quire:prompt_tokens_total"))

    def step_s_and_tokens_per_s(self):
        elapsed, steps, tokens = (now - then for now, then in zip(self.now(), self.begin))
        return elapsed / max(steps, 1), tokens / elapsed


def measure(binary, flood, visits, seed):
    """Times of B, seconds of a step, prompt tokens a second; flood None: B is alone."""
    server = Server(binary)
    try:
        time_to_first_token(server)  # the first one warms up
        running = None
        if flood is not None:
            running = Flood(server, *flood)
            while server.metric("quire:prompt_tokens_total") < 4 * PROMPT_TOKENS:
                if running.refused:
                    raise SystemExit(f"the flood was refused: {running.refused}")
                time.sleep(0.1)
        pauses = random.Random(seed)
        progress = Progress(server)
        times = []
        for _ in range(visits):
            time.sleep(pauses.uniform(0.2, 2))
            times.append(time_to_first_token(server))
        step_s, tokens_per_s = progress.step_s_and_tokens_per_s()
        if running is not None:
            if running.refused:
                raise SystemExit(f"the flood was refused: {running.refused}")
            running.stopping = True
        return times, step_s, tokens_per_s
    finally:
        server.stop()


def row(name, label, times, step_s, tokens_per_s):
    cells = [name, label, f"{statistics.median(times):.3f}", f"{max(times):.3f}"]
    if step_s is None:
        cells += ["", "", "", ""]
    else:
        cells += [f"{step_s:.3f}", f"{statistics.median(times) / step_s:.1f}", f"{max(times) / step_s:.1f}",
                  f"{tokens_per_s:,.0f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="*", metavar="LABEL=BINARY", default=["quire=build/release/src/quire"])
    parser.add_argument("--visits", type=int, default=10)
    parser.add_argument("--flood", action="append", choices=list(FLOODS), help="only these")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    binaries = [binary.partition("=")[::2] for binary in arguments.binaries]
    print("| flood | quire | B's first token, s, median | longest | a step, s | in steps, median | longest "
          "| flood's tokens/s |\n|---|---|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in [None, *(arguments.flood or FLOODS)]:
        for label, binary in binaries:
            times, step_s, tokens_per_s = measure(binary, name and FLOODS[name], arguments.visits, arguments.seed)
            if name is None:
                step_s = None
            print(row(name or "none", label, times, step_s, tokens_per_s), flush=True)


if __name__ == "__main__":
    sys.exit(main())
