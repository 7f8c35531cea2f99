"""quire's nodes as processes: a group of them, and what they say."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

from support import BINARY, CPU, CliTest

# Of what takes a moment, on a machine that is busy: far more than it takes, far less than for ever.
SOON_S = 120
# In which every process of a group has ended after a node was lost. It should take 10 s; on a machine that is busy with
# other tests the same work takes longer, and with sanitizers much longer.
LOST_S = 60 if os.environ.get("QUIRE_SANITIZE") else 20
SMALL = ("--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--num-gpu-blocks-override", 200, "--threads", 2)


class Process:
    """A program, quire if no other is named, with its standard error as lines that can be waited for.

    env: a variable that is None is not there.
    """

    def __init__(self, *arguments, program=(BINARY,), env=None):
        environment = {**os.environ, **CPU, **(env or {})}
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env={name: value for name, value in environment.items() if value is not None})
        self.lines = []
        self.ended = False
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    @property
    def log(self):
        return "".join(self.lines)

    def wait_for_line(self, pattern):
        """The match of the first line that has one."""
        deadline = time.monotonic() + SOON_S
        with self.news:
            while True:
                match = next((m for line in self.lines if (m := re.search(pattern, line))), None)
                if match:
                    return match
                if self.ended or not self.news.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no line has {pattern!r}: {self.log}")

    def wait(self):
        code = self.process.wait(SOON_S)
        self.reader.join(SOON_S)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


class Group:
    """Node 0 running a command, and the other nodes.

    `launcher`: variables that say how many and which one. `enter`: for each node, the command that runs its own on its host.
    """

    def __init__(self, *command, tensor=1, stages=1, nodes=2, others=(), env=None, others_env=None, options=SMALL,
                 launcher=None, enter=None):
        self.options = [*options, "--tensor-parallel-size", tensor, "--pipeline-parallel-size", stages]
        self.launcher = launcher
        self.enter = enter or [()] * nodes
        self.num_nodes = nodes
        self.nodes = [self.start(0, *command, "--master-port", 0, env=env)]
        try:
            self.port = self.nodes[0].wait_for_line(r"node 0 waits at [\d.]+:(\d+)")[1]
            for node in range(1, nodes):
                self.add(node, *others, env=others_env or env)
        except BaseException:
            self.kill()
            raise

    def start(self, node, *command, env=None):
        program = (*self.enter[node], BINARY)
        if self.launcher:
            size, rank = self.launcher
            return Process(*command, *self.options, program=program,
                           env={**(env or {}), size: str(self.num_nodes), rank: str(node)})
        return Process(*command, *self.options, "--nnodes", self.num_nodes, "--node-rank", node, program=program, env=env)

    def add(self, node, *arguments, env=None):
        self.nodes.append(self.start(node, "serve", *arguments, "--master-port", self.port, env=env))

    def serving(self):
        match = self.nodes[0].wait_for_line(r"serving at http://([\d.]+):(\d+)")
        self.address = match[1], int(match[2])
        return self

    def request(self, body, path="/v1/completions"):
        connection = http.client.HTTPConnection(*self.address, timeout=SOON_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def complete(self, prompt):
        connection, response = self.request({"prompt": prompt, "temperature": 0, "max_tokens": 12})
        with contextlib.closing(connection):
            return json.loads(response.read())["choices"][0]["text"]

    def stream(self, body):
        """All that comes of a streamed completion."""
        connection, response = self.request({**body, "stream": True})
        with contextlib.closing(connection):
            return response.read().decode()

    def metrics(self):
        host, port = self.address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=SOON_S) as page:
            return page.read().decode()

    def wait_until_running(self):
        """Until the engine has a request that runs."""
        deadline = time.monotonic() + SOON_S
        while not re.search(r"(?m)^quire:num_requests_running\{.*\} 1", self.metrics()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no request runs: {self.nodes[0].log}")
            time.sleep(0.02)

    def answer_beside(self, end, max_tokens):
        """What comes of a stream that runs when end() is called; node 1 is stopped before, so it cannot be over."""
        self.serving()
        self.nodes[1].process.send_signal(signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            stream = pool.submit(self.stream, {"prompt": "define apple", "max_tokens": max_tokens, "ignore_eos": True})
            self.wait_until_running()
            end()
            return stream.result()

    def wait(self):
        return [node.wait() for node in self.nodes]

    def kill(self):
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def group(*command, **options):
    made = Group(*command, **options)
    try:
        yield made
    finally:
        made.kill()


def serving(**options):
    return group("serve", "--port", 0, **options)


class NodesTest(CliTest):
    def assert_all_say(self, made, *fragments):
        """Every process of a group ends with 1, and its log has the fragments."""
        for number, code in enumerate(made.wait()):
            self.assertEqual(code, 1, made.nodes[number].log)
            for fragment in fragments:
                self.assertIn(fragment, made.nodes[number].log)

    def assert_ends_soon(self, node, begin):
        """A node ends with 1 after another one was lost at the time `begin`."""
        code = node.wait()
        seconds = time.monotonic() - begin
        self.assertEqual(code, 1, node.log)
        self.assertLess(seconds, LOST_S, node.log)
