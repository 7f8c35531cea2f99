#!/usr/bin/env python3
"""Measures what drafts gain on a GPU: steps with them against steps without, in the same run.

    scripts/measure_speculation.py                      the rows below
    scripts/measure_speculation.py --json FILE          writes the rows too
    scripts/measure_speculation.py --only "1 stream"    rows whose name has this: "eagle3", "ngram", "4 streams"
    scripts/measure_speculation.py --smoke              tiny models and little work: whether it all runs

docs/speculative.md has more that this does not measure: what a step takes by its number of rows, other lengths of context, servers (scripts that
the document names), and how many drafts of real models are kept.

Models and heads are configs of published ones with random weights, so noise decides which drafts are kept
(synthetic_acceptance_length). It needs only the standard library.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import measure_gpu

STREAMS = (1, 4, 16, 64, 256)
NGRAM, HEAD, MODEL = "ngram", "eagle3", "draft_model"
# What a head should gain with 3.0 tokens a draft, by streams, and what a step with four drafts may take of one without.
GOALS = {1: 2.3, 4: 1.9, 16: 1.4, 64: 1.0, 256: 0.98}
MOST_OF_A_STEP = 1.25
# The head of a published model has its sizes, one layer, and a part of its vocabulary.
HEAD_FIELDS = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
               "draft_vocab_size": 32000, "tie_word_embeddings": False}
SMOKE_HEAD = {"draft_vocab_size": 256, "eagle_aux_hidden_state_layer_ids": [0, 1]}
# The smaller model that drafts for another.
DRAFTS_FOR = {"Qwen3-8B": "Qwen3-0.6B"}


def row(model, count, length, method=NGRAM, adaptive=True, quantization=None):
    kind = f"{length} tokens a draft" + ("" if adaptive else ", always four drafts")
    kind += f", {quantization} head" if quantization else ""
    arguments = ["--batch", count, "--input-len", 128, "--output-len", 512 if count <= 4 else 256, "--num-iters", 2]
    goal = GOALS[count] if method == HEAD and length == 3.0 and adaptive else None
    return {"name": f"{method}, {measure_gpu.streams(count)[0]}, {kind}", "model": model, "arguments": arguments,
            "goal": goal, "method": method, "length": length, "adaptive": adaptive, "quantization": quantization}


WORK = [
    *(row("Qwen3-8B", count, 3.0, HEAD) for count in STREAMS),
    row("Qwen3-8B", 1, 3.0, HEAD, adaptive=False),
    *(row("Qwen3-8B", count, 3.0, HEAD, quantization="fp8") for count in (1, 4)),
    row("Qwen3-8B", 1, 3.0, HEAD, adaptive=False, quantization="fp8"),
    *(row("Qwen3-8B", count, 1.0, HEAD) for count in (1, 16, 256)),
    *(row("Qwen3-8B", count, 3.0, MODEL) for count in (1, 16)),
    row("Qwen3-8B", 1, 3.0, MODEL, adaptive=False),
    *(row("Qwen3-8B", count, 3.0) for count in STREAMS),
    row("Qwen3-8B", 1, 3.0, adaptive=False),
    row("Qwen3-8B", 1, 1.0, adaptive=False),
    row("Qwen3-8B", 64, 3.0, adaptive=False),
    *(row("Qwen3-8B", count, 1.0) for count in (1, 16, 256)),
    *(row("Qwen3-0.6B", count, 3.0) for count in (1, 64)),
    row("Qwen3-0.6B", 1, 1.0),
]


def write_head(folder, model, smoke):
    """A head for the model: its config, whose weights are random."""
    folder = pathlib.Path(folder) / f"{model}-eagle3"
    folder.mkdir(parents=True, exist_ok=True)
    config = {**measure_gpu.MODELS[model], **(measure_gpu.SMOKE if smoke else {}), **HEAD_FIELDS,
              **(SMOKE_HEAD if smoke else {})}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def drafts(work, folders, heads):
    """Four drafts of a sequence that bring so many tokens on average."""
    fields = {"method": work["method"], "num_speculative_tokens": 4, "synthetic_acceptance_length": work["length"]}
    if work["method"] == HEAD:
        fields["model"] = str(heads[work["model"]])
    elif work["method"] == MODEL:
        fields["model"] = str(folders[DRAFTS_FOR[work["model"]]])
    if work["quantization"]:
        fields["quantization"] = work["quantization"]
    return json.dumps(fields if work["adaptive"] else {**fields, "adaptive": False})


def measure(quire, folder, arguments, more):
    command = [quire, "bench", "latency", folder, "--load-format", "dummy", "--device", "cuda", *arguments, *more,
               "--json"]
    return json.loads(measure_gpu.run(command))


def shown(work):
    """The command of a row as one would type it."""
    config = drafts(work, {model: model for model in measure_gpu.MODELS},
                    {model: f"{model}-eagle3" for model in measure_gpu.MODELS})
    return " ".join(map(str, ["quire bench latency", work["model"], "--load-format dummy", *work["arguments"],
                              f"--speculative-config '{config}'"]))


def compare(work, before, drafted):
    """A row of the table."""
    ratio = drafted["decode_tokens_per_s"] / before["decode_tokens_per_s"]
    length = drafted["mean_acceptance_length"]
    # Of steps that all have drafts.
    step = length / ratio if length and not work["adaptive"] else None
    most = MOST_OF_A_STEP if step and work["method"] == HEAD else None
    return {"name": work["name"], "model": work["model"], "without": round(before["decode_tokens_per_s"]),
            "with": round(drafted["decode_tokens_per_s"]), "ratio": round(ratio, 3), "goal": work["goal"],
            "mean_acceptance_length": length, "step_ratio": step, "step_goal": most, "command": shown(work)}


def line(found):
    step = f"{found['step_ratio']:.2f}" if found["step_ratio"] else ""
    if found["step_goal"]:
        step += f" (goal: {found['step_goal']})"
    return (f"| {found['name']}, {found['model']} | {found['without']:,} | {found['with']:,} | {found['ratio']:.3f} | "
            f"{found['goal'] or ''} | {found['mean_acceptance_length'] or 0:.2f} | {step} |")


def write_json(path, head, rows):
    # One row a line, so that a change of the file can be read.
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
    text = ",\n".join("  " + json.dumps(row) for row in rows)
    path.write_text("{\n" + "".join(lines) + ' "rows": [\n' + text + "\n ]\n}\n", encoding="utf-8")


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
        models = {work["model"] for work in WORK} | set(DRAFTS_FOR.values())
        folders = {model: measure_gpu.write_config(temporary, model, args.smoke)[0] for model in models}
        heads = {model: write_head(temporary, model, args.smoke) for model in models}
        head = measure_gpu.about(args, folders["Qwen3-8B"]) if args.json else {}
        print("| work | tokens/s without | with | ratio | goal | tokens a draft | a step takes, of one without |\n"
              "|---|---|---|---|---|---|---|")
        for work in WORK:
            if args.only not in f"{work['name']}, {work['model']}":
                continue
            arguments = work["arguments"]
            if args.smoke:
                arguments = ["--batch", 2, "--input-len", 16, "--output-len", 20, "--num-iters", 1]
            key = (work["model"], *arguments)
            if key not in plain:
                plain[key] = measure(args.quire, folders[work["model"]], arguments, [])
            more = ["--speculative-config", drafts(work, folders, heads)]
            found = compare(work, plain[key], measure(args.quire, folders[work["model"]], arguments, more))
            rows.append(found)
            print(line(found), flush=True)
            if args.json:
                write_json(args.json, head, rows)


if __name__ == "__main__":
    sys.exit(main())
