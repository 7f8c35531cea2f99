#!/usr/bin/env python3
"""Measures how often the bundled model's answers stay the same beside others, and with drafts, in lower precision.

    scripts/measure_agreement.py                    on a GPU, in bfloat16
    scripts/measure_agreement.py --device cpu       where all stay the same

A GPU's sums in bfloat16 depend on how many rows a step has, so a token may differ where two are almost equally likely.
Each answer alone, sampled with a seed, is compared with the same answer in a batch and with drafts of an EAGLE-3 head:
speculation should change answers no more often than neighbours do. Needs only the standard library.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = ROOT / "models" / "lexicon-eagle3"


def answers(args, prompts, temperature, *options):
    command = [args.quire, "generate", args.model, "--device", args.device, "--json", "--seed", 3, "--temperature",
               temperature, "--max-tokens", 64, "--prompt-file", prompts, *options]
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    if result.returncode != 0:
        raise SystemExit(result.stderr)
    return [json.loads(line)["token_ids"] for line in result.stdout.splitlines()]


def compare(args, prompts, count):
    drafts = ["--speculative-config", json.dumps({"method": "eagle3", "model": str(HEAD), "adaptive": False,
                                                  "num_speculative_tokens": 4})]
    ways = {"alone, again": ["--max-num-seqs", 1], "beside 7": ["--max-num-seqs", 8],
            "beside all": [], "alone, with drafts": ["--max-num-seqs", 1, *drafts],
            "beside all, with drafts": drafts}
    print(f"| answers of {count} that are the same as alone | " + " | ".join(ways) + " |")
    print("|--|" + "--:|" * len(ways))
    for temperature in (0, 0.6, 1):
        alone = answers(args, prompts, temperature, "--max-num-seqs", 1)
        same = [sum(a == b for a, b in zip(alone, answers(args, prompts, temperature, *options)))
                for options in ways.values()]
        print(f"| temperature {temperature} | " + " | ".join(map(str, same)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quire", default=ROOT / "build" / "release" / "src" / "quire", help="the binary")
    parser.add_argument("--model", default=ROOT / "models" / "lexicon", help="[the bundled one]")
    parser.add_argument("--device", default="cuda", help="[cuda]")
    args = parser.parse_args()
    cases = json.loads((ROOT / "tests" / "golden" / "lexicon" / "prompts.json").read_text(encoding="utf-8"))
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as prompts:
        prompts.write("".join(json.dumps({"messages": case["messages"]}) + "\n" for case in cases))
        prompts.flush()
        compare(args, prompts.name, len(cases))


if __name__ == "__main__":
    sys.exit(main())
