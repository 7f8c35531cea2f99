#!/usr/bin/env python3
"""Kills a random node of a group again and again under load, on this machine's loopback.

    scripts/soak_nodes.py --minutes 10 --kill-every 60 --nodes 2
    scripts/soak_nodes.py --nodes 2 --stages 2 --drafts

With --stages each node has ranks of a stage; without, all nodes share the layers. With --drafts steps verify n-grams.
Clients ask the group without a pause. Fails if a request gets no answer and no error within --limit seconds, if an
answer that completes is not that of one process, or if the other nodes do not end within --limit seconds. The group is
started again each time. It takes build/release's quire, or QUIRE_BINARY.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("QUIRE_SOURCE_DIR", str(ROOT))
os.environ.setdefault("QUIRE_BINARY", str(ROOT / "build" / "release" / "src" / "quire"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from nodes_support import Process, serving  # noqa: E402: found through the line above

WORDS = ("apple", "river", "anger", "justice", "window", "music", "winter", "stone")
OPTIONS = ("--max-num-seqs", 16, "--max-num-batched-tokens", 256, "--num-gpu-blocks-override", 400, "--threads", 1)
DRAFTS = ("--speculative-config", '{"method": "ngram", "prompt_lookup_min": 1, "adaptive": false}')


def body_for(word):
    return {"prompt": f"define {word}", "temperature": 0, "max_tokens": 64, "ignore_eos": True}


def ask(address, word, limit):
    """The text, or nothing where the server said that it failed. Raises TimeoutError for a client that hangs."""
    connection = http.client.HTTPConnection(*address, timeout=limit)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body_for(word)), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        return answer["choices"][0]["text"] if response.status == 200 else None
    except (ConnectionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def answers_of_one_process(ranks, limit):
    process = Process("serve", "--port", 0, "--tensor-parallel-size", ranks, *OPTIONS[:-1], ranks)
    try:
        match = process.wait_for_line(r"serving at http://([\d.]+):(\d+)")
        return {word: ask((match[1], int(match[2])), word, limit) for word in WORDS}
    finally:
        process.kill()


class Clients:
    """Threads that ask until they are told to stop."""

    def __init__(self, address, expected, limit, count, tally):
        self.stopping = False
        self.arguments = address, expected, limit, tally
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        address, expected, limit, tally = self.arguments
        chosen = random.Random(seed)
        while not self.stopping:
            word = chosen.choice(WORDS)
            try:
                text = ask(address, word, limit)
            except TimeoutError:
                tally["hung"] += 1
                continue
            if text is None:
                tally["ended by an error"] += 1
                time.sleep(0.05)
            else:
                tally["right" if text == expected[word] else "wrong"] += 1

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def run_group(arguments, expected, seconds, tally, chosen):
    """One life of a group, which ends with the death of a node."""
    options = (*OPTIONS, *(DRAFTS if arguments.drafts else ()))
    with serving(tensor=arguments.nodes // arguments.stages, stages=arguments.stages, nodes=arguments.nodes,
                 options=options) as group:
        group.serving()
        clients = Clients(group.address, expected, arguments.limit, arguments.clients, tally)
        try:
            time.sleep(seconds)
            victim = chosen.randrange(arguments.nodes)
            group.nodes[victim].process.kill()
            begin = time.monotonic()
            codes = [node.wait() for node in group.nodes]
            took = time.monotonic() - begin
        finally:
            clients.stop()
    tally["slow ends"] += took > arguments.limit
    tally["other codes"] += any(code != 1 for node, code in enumerate(codes) if node != victim)
    print(f"node {victim} was killed; all had ended after {took:.1f} s; {dict(tally)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kill-every", type=float, default=60, help="seconds of a group's life")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--stages", type=int, default=1, help="a divisor of --nodes")
    parser.add_argument("--drafts", action="store_true")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--limit", type=float, default=30, help="seconds within which everything has to end")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chosen = random.Random(arguments.seed)
    if arguments.nodes % arguments.stages != 0:
        parser.error(f"--stages is {arguments.stages}; expected a divisor of --nodes {arguments.nodes}")
    expected = answers_of_one_process(arguments.nodes // arguments.stages, arguments.limit)
    tally = collections.Counter()
    deadline = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < deadline:
        run_group(arguments, expected, min(arguments.kill_every, max(1.0, deadline - time.monotonic())), tally, chosen)
    failed = [name for name in ("hung", "wrong", "slow ends", "other codes") if tally[name]]
    if failed or not tally["right"]:
        sys.exit(f"failed: {', '.join(failed) or 'no answer came'}")


if __name__ == "__main__":
    main()
