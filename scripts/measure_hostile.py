#!/usr/bin/env python3
"""What hostile clients do to others: the gaps between the tokens of six streams, alone and beside crowds of
tests/e2e/hostile_test.py, in turns.

    scripts/measure_hostile.py [--binary build/release/src/quire] [--seconds 10] [--rounds 3] [--cases 2000] [--assert-gaps]

There are as many rounds as --cases hostile clients need, and --rounds at least. With --assert-gaps it exits with 1 where
the median or the 99th percentile of the gaps is more than twice as long beside them.

The hostile clients share the machine with the server, so they run at the lowest priority. Needs the packages of
scripts/python_env.sh.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]
os.environ.setdefault("QUIRE_SOURCE_DIR", str(ROOT))
os.environ.setdefault("QUIRE_BINARY", str(ROOT / "build" / "release" / "src" / "quire"))
from python_packages import use_test_packages  # noqa: E402

use_test_packages()

STREAMS = 6
MOST_TIMES_LONGER = 2
ASSERTED = ("median_itl_ms", "p99_itl_ms")
MEASURES = ("median_itl_ms", "p90_itl_ms", "p99_itl_ms", "max_itl_ms")


class Address:
    """As much of server_support's Server as hostile clients need of one that runs in another process."""

    def __init__(self, address):
        self.host, port = address.removeprefix("http://").split(":")
        self.port = int(port)
        self.log = ""


def facing(client, seed):
    def face(crowd):
        client.run_all(crowd)
        print(seed, len(crowd), flush=True)

    return face


def attack(address, first_seed):
    """Sends crowd after crowd until the process is killed. Prints the seed and the number of clients of each."""
    import hypothesis

    from hostile_cases import crowds, weighted_endpoints
    from hostile_client import HostileClient
    from hostile_test import LARGEST, SETTINGS

    os.nice(19)
    client = HostileClient(Address(address))
    with urllib.request.urlopen(f"{address}/openapi.json") as description:
        wanted = crowds(weighted_endpoints(json.load(description)), LARGEST)
    for seed in itertools.count(first_seed):
        hypothesis.seed(seed)(SETTINGS(hypothesis.given(wanted)(facing(client, seed))))()


def beside_attack(measure, address, first_seed):
    """(what `measure` gives, how many hostile clients there were meanwhile, the seed to go on with)"""
    with tempfile.TemporaryFile("w+") as crowds:
        attacker = subprocess.Popen([sys.executable, "-B", __file__, "--attack", address, "--seed", str(first_seed)],
                                    stdout=crowds)
        try:
            measured = measure()
            if attacker.poll() is not None:
                sys.exit("the hostile clients found something: run tests/e2e/hostile_test.py")
        finally:
            attacker.kill()
            attacker.wait()
        crowds.seek(0)
        sent = [[int(number) for number in line.split()] for line in crowds if line.endswith("\n")]
    return measured, sum(count for _, count in sent), max((seed + 1 for seed, _ in sent), default=first_seed)


def gaps(binary, address, prompts, seconds):
    """The percentiles of the gaps; ends the program where a stream failed or had other tokens than before."""
    result = subprocess.run(
        [binary, "bench", "serve", "--base-url", address, "--dataset", prompts, "--temperature", "0", "--ignore-eos",
         "--max-tokens", "64", "--expect-identical", "--max-concurrency", str(STREAMS), "--duration", str(seconds),
         "--json"],
        capture_output=True, encoding="utf-8", check=False)
    if result.returncode != 0:
        sys.exit(f"a stream failed: {result.stdout}{result.stderr}")
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.environ["QUIRE_BINARY"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", type=int, default=0, help="hostile clients, in all rounds together")
    parser.add_argument("--assert-gaps", action="store_true")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["QUIRE_BINARY"] = arguments.binary
    if arguments.attack:
        attack(arguments.attack, arguments.seed)
    from healthy_streams import WORDS
    from hostile_test import ARGUMENTS
    from server_support import serving

    measured = {"alone": [], "beside": []}
    cases = seed = 0
    with serving(*ARGUMENTS) as server, tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        for word in WORDS:
            prompts.write(json.dumps({"messages": [{"role": "user", "content": f"define {word}"}]}) + "\n")
        prompts.flush()

        def measure():
            return gaps(arguments.binary, server.address, prompts.name, arguments.seconds)

        while len(measured["beside"]) < arguments.rounds or cases < arguments.cases:
            measured["alone"].append(measure())
            beside, count, seed = beside_attack(measure, server.address, seed)
            measured["beside"].append(beside)
            cases += count
        server.wait_until_idle()
    print(f"{len(measured['beside'])} rounds, {cases} hostile clients\n")
    print("| gap, ms | alone | beside hostile clients | ratio |\n|---|--:|--:|--:|")
    too_long = []
    for name in MEASURES:
        alone, beside = (statistics.median(each[name] for each in measured[kind]) for kind in ("alone", "beside"))
        print(f"| {name.removesuffix('_itl_ms')} | {alone:.2f} | {beside:.2f} | {beside / alone:.2f} |")
        if name in ASSERTED and beside > MOST_TIMES_LONGER * alone:
            too_long.append(name)
    if arguments.assert_gaps and too_long:
        sys.exit(f"more than {MOST_TIMES_LONGER} times as long: {', '.join(too_long)}")


if __name__ == "__main__":
    main()
