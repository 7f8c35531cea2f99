#!/usr/bin/env python3
"""Measures what drafts gain on a GPU: steps with them against steps without, in the same run.

    scripts/measure_speculation.py                      every row of docs/speculative.md
    scripts/measure_speculation.py --json FILE          writes the rows too
    scripts/measure_speculation.py --only "1 stream"    rows whose name has this
    scripts/measure_speculation.py --smoke              tiny models and little work: whether it all runs

Models are configs of published models with random weights, so noise decides which drafts are kept
(synthetic_acceptance_length). It needs only the standard library.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import measure_gpu

STREAMS = (1, 4, 16, 64, 256)


def drafts(length, adaptive=True):
    """Four drafts of a sequence that bring `length` tokens on average."""
    fields = {"method": "ngram", "num_speculative_tokens": 4, "synthetic_acceptance_length": length}
    return json.dumps(fields if adaptive else {**fields, "adaptive": False})


def row(model, count, length, adaptive=True):
    kind = f"{length} tokens a draft" + ("" if adaptive else ", always four drafts")
    arguments = ["--batch", count, "--input-len", 128, "--output-len", 512 if count <= 4 else 256, "--num-iters", 2]
    return f"{measure_gpu.streams(count)[0]}, {kind}", model, arguments, drafts(length, adaptive)


WORK = [
    *(row("Qwen3-8B", count, 3.0) for count in STREAMS),
    row("Qwen3-8B", 1, 3.0, adaptive=False),
    row("Qwen3-8B", 1, 1.0, adaptive=False),
    row("Qwen3-8B", 64, 3.0, adaptive=False),
    *(row("Qwen3-8B", count, 1.0) for count in (1, 16, 256)),
    *(row("Qwen3-0.6B", count, 3.0) for count in (1, 64)),
    row("Qwen3-0.6B", 1, 1.0),
]


def measure(quire, folder, arguments, more):
    command = [quire, "bench", "latency", folder, "--load-format", "dummy", "--device", "cuda", *arguments, *more,
               "--json"]
    return json.loads(measure_gpu.run(command))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quire", default=measure_gpu.ROOT / "build/release/src/quire", help="the binary")
    parser.add_argument("--only", default="", metavar="PART", help="rows whose name and model have this")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="where the rows are written")
    parser.add_argument("--commit", help="the binary's, for the file [that of this checkout]")
    parser.add_argument("--smoke", action="store_true", help="tiny models and little work")
    args = parser.parse_args()
    rows, plain = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folders = {model: measure_gpu.write_config(temporary, model, args.smoke)[0] for _, model, _, _ in WORK}
        head = measure_gpu.about(args, next(iter(folders.values()))) if args.json else {}
        print("| work | tokens/s without | with | ratio | tokens a draft | a step takes, of one without |\n"
              "|---|---|---|---|---|---|")
        for name, model, arguments, config in WORK:
            if args.only not in f"{name}, {model}":
                continue
            if args.smoke:
                arguments = ["--batch", 2, "--input-len", 16, "--output-len", 20, "--num-iters", 1]
            key = (model, *arguments)
            if key not in plain:
                plain[key] = measure(args.quire, folders[model], arguments, [])
            drafted = measure(args.quire, folders[model], arguments, ["--speculative-config", config])
            before, after = plain[key]["decode_tokens_per_s"], drafted["decode_tokens_per_s"]
            length = drafted["mean_acceptance_length"]
            # Of steps that all have drafts.
            step = length * before / after if length and "always" in name else None
            found = {"name": name, "model": model, "without": round(before), "with": round(after),
                     "ratio": round(after / before, 3), "mean_acceptance_length": length, "step_ratio": step,
                     "command": " ".join(map(str, ["quire bench latency", model, "--load-format dummy", *arguments,
                                                   f"--speculative-config '{config}'"]))}
            rows.append(found)
            print(f"| {name}, {model} | {before:,.0f} | {after:,.0f} | {after / before:.3f} | "
                  f"{length or 0:.2f} | {f'{step:.2f}' if step else ''} |", flush=True)
            if args.json:
                lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
                text = ",\n".join("  " + json.dumps(r) for r in rows)
                args.json.write_text("{\n" + "".join(lines) + ' "rows": [\n' + text + "\n ]\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
