#!/usr/bin/env python3
"""Answers under JSON Schemas made up at random, judged by Python's jsonschema: all have to parse and to follow theirs.

    scripts/try_random_schemas.py [--quire PROGRAM] [--count N] [--first N] [--threads N] [--list]

Asks `quire serve` with the bundled model, which knows no JSON, for N answers (default: 10,000), at temperatures from 0 to 2
and cut at random numbers of tokens. A case is a number, the same in every run: --first 17 --count 1 asks number 17 again.
--list prints each refusal's sentence with how often it came. Exits with 1 if an answer is wrong. tests/e2e/structured_test.py
asks for some of them in each run of the tests.
"""

import argparse
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]
os.environ.setdefault("QUIRE_SOURCE_DIR", str(ROOT))
os.environ.setdefault("QUIRE_BINARY", str(ROOT / "build" / "release" / "src" / "quire"))

from python_packages import use_test_packages  # noqa: E402

use_test_packages()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default=os.environ["QUIRE_BINARY"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    os.environ["QUIRE_BINARY"] = options.quire
    from random_schemas import make_request, make_schema, try_schemas  # pylint: disable=import-outside-toplevel
    from server_support import serving  # pylint: disable=import-outside-toplevel

    def report(done):
        if done % 500 == 0:
            print(f"{done:,} of {options.count:,}", file=sys.stderr, flush=True)

    numbers = range(options.first, options.first + options.count)
    with serving("--no-access-log", "--threads", options.threads) as server:
        findings = try_schemas(server, numbers, report=report)
    for name, count in findings.counts.items():
        print(f"{name:<18} {count:>9,}")
    print(f"{'wrong':<18} {len(findings.faults):>9,}")
    if options.list:
        for reason, count in findings.refusals.most_common():
            print(f"refused {count:>6,} x {reason}")
    for number, sentence in findings.faults:
        request = {name: value for name, value in make_request(number).items() if name != "structured_outputs"}
        print(f"number {number}: {sentence}\n  {json.dumps(request)}\n  {json.dumps(make_schema(number))}")
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
