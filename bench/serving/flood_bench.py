#!/usr/bin/env python3
"""How long one client's short request waits while another client floods the server.

    bench/serving/flood_bench.py [--visits N] [--flood NAME]... [--shape NAME] [LABEL=BINARY]...

starts `quire serve` of each binary (default: build/release/src/quire) with the bundled model, or random weights in the
shape of a model of scripts/measure_gpu.py, and two keys. Key A sends one kind of flood again and again, from a process
of its own; key B asks for one token, N times, at random moments. Prints B's time to the first token, median and
longest, in seconds and in steps of the engine, as B sees it and as the server says (/v1/requests), and the prompt
tokens a second that the flood gets meanwhile. Everything stays on loopback and ends with the script.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

NUM_PROMPTS = 128
PROMPT_TOKENS = 2000
VOCABULARY = 8000  # ids below are ordinary tokens of the bundled model
START_S = 60
REQUEST_S = 600
VISITOR_PROMPT = [10 + i for i in range(20)]


class Server:
    """`quire serve` on a free port of loopback."""

    def __init__(self, binary, model):
        self.process = subprocess.Popen(
            [binary, "serve", *model, "--port", "0", "--no-access-log", "--api-key", "A", "--api-key", "B"],
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
    """Keeps a number of requests of key A going until it is stopped. In a process of its own: the threads of one Python
    process wait for each other, and B would wait with them."""

    def __init__(self, server, name):
        self.refusals = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=self.run, args=(server, name), daemon=True)
        self.process.start()

    def run(self, server, name):
        num_requests, make_body = FLOODS[name]
        threads = [threading.Thread(target=self.send, args=(server, make_body)) for _ in range(num_requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def send(self, server, make_body):
        while True:
            try:
                with server.response("A", "/v1/completions", make_body()) as response:
                    if response.status != 200:
                        self.refusals.put(f"{response.status}: {response.read(500)!r}")
                        return
                    while response.read(1 << 20):
                        pass
            except (OSError, http.client.HTTPException) as error:
                self.refusals.put(repr(error))
                return

    def check(self):
        if not self.refusals.empty():
            raise SystemExit(f"the flood was refused: {self.refusals.get()}")

    def stop(self):
        self.process.kill()
        self.process.join()


def time_to_first_token(server):
    """Seconds until the first token comes, as this process sees it, and as the server says."""
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
        seen = time.monotonic() - begin
        request_id = json.loads(line[len(b"data: "):])["id"]
        response.read()
    with server.response("B", f"/v1/requests/{request_id}") as response:
        return seen, json.load(response)["seconds"]["time_to_first_token"]


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


def measure(binary, model, flood, visits, seed):
    """Times of B, seconds of a step, prompt tokens a second; flood None: B is alone."""
    server = Server(binary, model)
    running = None
    try:
        time_to_first_token(server)  # the first one warms up
        if flood is not None:
            running = Flood(server, flood)
            while server.metric("quire:prompt_tokens_total") < 4 * PROMPT_TOKENS:
                running.check()
                time.sleep(0.1)
            time.sleep(2)  # so that steps are timed, and kernels loaded
        pauses = random.Random(seed)
        progress = Progress(server)
        times = []
        for _ in range(visits):
            time.sleep(pauses.uniform(0.05, 0.4) if model else pauses.uniform(0.2, 2))
            times.append(time_to_first_token(server))
        step_s, tokens_per_s = progress.step_s_and_tokens_per_s()
        if running is not None:
            running.check()
        return times, step_s, tokens_per_s
    finally:
        if running is not None:
            running.stop()
        server.stop()


def row(name, label, times, step_s, tokens_per_s):
    seen, said = zip(*times)
    cells = [name, label, f"{statistics.median(seen):.4f}", f"{max(seen):.4f}", f"{statistics.median(said):.4f}",
             f"{max(said):.4f}"]
    if step_s is None:
        cells += ["", "", "", ""]
    else:
        cells += [f"{step_s:.4f}", f"{statistics.median(said) / step_s:.1f}", f"{max(said) / step_s:.1f}",
                  f"{tokens_per_s:,.0f}"]
    return "| " + " | ".join(cells) + " |"


def model_arguments(shape, folder):
    """What `quire serve` needs to serve random weights in that shape; nothing for the bundled model."""
    if shape is None:
        return []
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
    from measure_gpu import write_config
    return [str(write_config(folder, shape, False)[0]), "--load-format", "dummy", "--skip-tokenizer-init"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="*", metavar="LABEL=BINARY", default=["quire=build/release/src/quire"])
    parser.add_argument("--visits", type=int, default=10)
    parser.add_argument("--flood", action="append", choices=list(FLOODS), help="only these")
    parser.add_argument("--shape", metavar="NAME", help="random weights in the shape of Qwen3-0.6B, Qwen3-8B, ...")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    binaries = [binary.partition("=")[::2] for binary in arguments.binaries]
    print("| flood | quire | B's first token, s, median | longest | the server says, median | longest | a step, s "
          "| in steps, median | longest | flood's tokens/s |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = model_arguments(arguments.shape, folder)
        for name in [None, *(arguments.flood or FLOODS)]:
            for label, binary in binaries:
                times, step_s, tokens_per_s = measure(binary, model, name, arguments.visits, arguments.seed)
                if name is None:
                    step_s = None
                print(row(name or "none", label, times, step_s, tokens_per_s), flush=True)


if __name__ == "__main__":
    sys.exit(main())
