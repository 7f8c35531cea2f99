#!/usr/bin/env python3
"""What rounding its weights costs models/lexicon: right definitions of the 2,000 most frequent words, from quire itself.

    scripts/measure_quantisation.py build/release/src/quire    # needs WordNet 3.0 (Debian: apt-get install wordnet-base)
    scripts/measure_quantisation.py build/release/src/quire --model "int4, calibrated=FOLDER"    # and what quire quantize wrote

Questions and judgement are those of scripts/eval_lexicon.py: wordings that training never used, greedy answers, right if
they contain one sense's gloss up to its first semicolon.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from lexicon import answers, held_out  # noqa: E402
from lexicon.wordnet import read_wordnet  # noqa: E402

TITLE = "Definitions of the 2,000 most frequent words"
# Flags of quire generate for each row of the table.
ROWS = {
    "float32": ["--dtype", "float32"],
    "bfloat16": [],
    "fp8": ["--quantization", "fp8"],
    "int8": ["--quantization", "int8"],
    "int8, float32 activations": ["--quantization", "int8", "--dtype", "float32"],
    "int4": ["--quantization", "int4"],
    "int4, float32 activations": ["--quantization", "int4", "--dtype", "float32"],
    "bfloat16, KV cache in fp8": ["--kv-cache-dtype", "fp8"],
    "bfloat16, KV cache in int8": ["--kv-cache-dtype", "int8"],
}


def answer(binary: pathlib.Path, model: pathlib.Path, questions: list[str], flags: list[str],
           device: str) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("\n".join(questions))
        prompts.flush()
        command = [binary, "generate", model, "--device", device, "--json", "--chat",
                   "--temperature", "0", "--max-tokens", "128", "--prompt-file", prompts.name, *flags]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [json.loads(line)["text"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire", type=pathlib.Path, help="the binary")
    parser.add_argument("--wordnet", type=pathlib.Path, default=pathlib.Path("/usr/share/wordnet"))
    parser.add_argument("--wordings", type=int, default=3, help="held-out wordings asked of each word")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER", help="a row for this model too")
    parser.add_argument("--only", action="append", choices=ROWS, help="only this row, or these")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where quire computes [cpu]")
    args = parser.parse_args()
    rows = [(name, ROOT / "models" / "lexicon", ROWS[name]) for name in args.only or ROWS]
    rows += [(*given.split("=", 1), []) for given in args.model]

    rng = random.Random(TITLE)
    entries = read_wordnet(args.wordnet).entries[:2000]
    asked = [(entry, wording) for entry in entries for wording in rng.sample(held_out.DEFINE, args.wordings)]
    questions = [wording.replace("{w}", entry.word) for entry, wording in asked]
    print("| weights | right | \"I don't know\" |\n|---|--:|--:|")
    for name, model, flags in rows:
        texts = answer(args.quire, model, questions, flags, args.device)
        right = sum(any(gloss in text for gloss in entry.first_glosses) for (entry, _), text in zip(asked, texts))
        unknown = texts.count(answers.UNKNOWN_WORD)
        print(f"| {name} | {100 * right / len(asked):.1f} % | {100 * unknown / len(asked):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
