#!/usr/bin/env python3
"""What hostile clients do to others: the gaps between the tokens of six streams, alone and beside crowds of
tests/e2e/hostile_test.py, in turns.

    scripts/measure_hostile.py [--binary build/release/src/quire] [--seconds 10] [--rounds 3]

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
MEASURES = ("median_itl_ms", "p90_itl_ms", "p99_itl_ms", "max_itl_ms")


class Address:
    """As much of server_support's Server as hostile clients need of one that runs in another process."""

    def __init__(self, address):
        self.host, port = address.removeprefix("http://").split(":")
        self.port = int(port)
        self.log = ""


def attack(address):
    """Sends crowd after crowd until the process is killed."""
    import hypothesis

    from hostile_cases import crowds, weighted_endpoints
    from hostile_client import HostileClient
    from hostile_test import LARGEST, SETTINGS

    os.nice(19)
    client = HostileClient(Address(address))
    with urllib.request.urlopen(f"{address}/openapi.json") as description:
        wanted = crowds(weighted_endpoints(json.load(description)), LARGEST)
    for seed in itertools.count():
        hypothesis.seed(seed)(SETTINGS(hypothesis.given(wanted)(lambda crowd: client.run_all(crowd))))()


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
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["QUIRE_BINARY"] = arguments.binary
    if arguments.attack:
        attack(arguments.attack)
    from healthy_streams import WORDS
    from hostile_test import ARGUMENTS
    from server_support import serving

    measured = {"alone": [], "beside": []}
    with serving(*ARGUMENTS) as server, tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        for word in WORDS:
            prompts.write(json.dumps({"messages": [{"role": "user", "content": f"define {word}"}]}) + "\n")
        prompts.flush()
        for _ in range(arguments.rounds):
            measured["alone"].append(gaps(arguments.binary, server.address, prompts.name, arguments.seconds))
            attacker = subprocess.Popen([sys.executable, "-B", __file__, "--attack", server.address])
            try:
                measured["beside"].append(gaps(arguments.binary, server.address, prompts.name, arguments.seconds))
                if attacker.poll() is not None:
                    sys.exit("the hostile clients found something: run tests/e2e/hostile_test.py")
            finally:
                attacker.kill()
                attacker.wait()
        server.wait_until_idle()
    print("| gap, ms | alone | beside hostile clients | ratio |\n|---|---|---|---|")
    for name in MEASURES:
        alone, beside = (statistics.median(each[name] for each in measured[kind]) for kind in ("alone", "beside"))
        print(f"| {name.removesuffix('_itl_ms')} | {alone:.2f} | {beside:.2f} | {beside / alone:.2f} |")


if __name__ == "__main__":
    main()
