#!/usr/bin/env python3
"""Counts on how many of the 200 prompts of tests/golden/lexicon transformers' own greedy output in bf16, or fp16,
differs anywhere from its output in fp32: what rounding alone does to this model, to compare a runtime with.

    scripts/measure_divergence.py [--device cpu|cuda]

Needs torch and transformers. docs/accuracy.md has the counts beside quire's own.
"""

import argparse
import json

import torch
from transformers import AutoModelForCausalLM

from make_lexicon_golden import ROOT, greedy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    cases = json.loads((ROOT / "tests" / "golden" / "lexicon" / "prompts.json").read_text(encoding="utf-8"))
    folder = ROOT / "models" / "lexicon"
    torch.set_default_device(args.device)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        # The golden outputs are of the folder's bf16 weights, widened.
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(args.device, dtype).eval()
        stop = model.generation_config.eos_token_id
        differing = sum(greedy(model, case["prompt_ids"], stop)[0] != case["output_ids"] for case in cases)
        print(f"{dtype} on {args.device}: {differing} of {len(cases)} greedy outputs differ from float32's", flush=True)


if __name__ == "__main__":
    main()
