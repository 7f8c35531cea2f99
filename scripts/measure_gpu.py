#!/usr/bin/env python3
"""Measures quire on the GPUs of this machine, row by row of docs/performance.md.

    scripts/measure_gpu.py                        everything on one GPU
    scripts/measure_gpu.py --gpus 4               and on two and four
    scripts/measure_gpu.py --json FILE            writes the rows too, for scripts/plot_performance.py
    scripts/measure_gpu.py --only "1 stream"      rows whose name has this
    scripts/measure_gpu.py --smoke                tiny models and little work: whether it all runs

Models are configs of published models with random weights; the start reads a checkpoint of 1.2 GB, which is written
first. Limits, goals and other engines' figures come from docs/performance/references.json. It needs only the standard library.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCES = ROOT / "docs" / "performance" / "references.json"
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "hidden_act": "silu",
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "max_position_embeddings": 40960,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "torch_dtype": "bfloat16",
    "use_sliding_window": False, "vocab_size": 151936,
}
MODELS = {
    "Qwen3-0.6B": {**QWEN3, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
                   "num_hidden_layers": 28, "tie_word_embeddings": True},
    "Qwen3-8B": {**QWEN3, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
                 "num_hidden_layers": 36, "tie_word_embeddings": False},
    "Llama-3.2-1B": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
        "hidden_act": "silu", "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_size": 2048,
        "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 128256},
    "Qwen2.5-7B": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072,
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "use_sliding_window": False, "vocab_size": 152064},
}
# The same as a GPTQ checkpoint of 4 bits.
MODELS["Qwen3-8B-int4"] = {**MODELS["Qwen3-8B"], "quantization_config": {
    "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "checkpoint_format": "gptq"}}
SMOKE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "num_hidden_layers": 2, "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2}

OUTPUT, DECODE, PREFILL = "output_tokens_per_s", "decode_tokens_per_s", "prefill_tokens_per_s"
LONG_PREFILL = ["--batch", 16, "--input-len", 2048, "--output-len", 1, "--max-num-batched-tokens", 32768]


def streams(count):
    """A row that decodes `count` sequences at once, each after a prompt of 128 tokens."""
    return (f"{count} stream{'s' if count > 1 else ''}", "latency",
            ["--batch", count, "--input-len", 128, "--output-len", 512 if count == 1 else 256], DECODE)


# Name, bench, its arguments, the figure.
BENCH_PY = ("bench.py", "throughput", [], OUTPUT)
FP8_CACHE = ("bench.py, fp8 KV cache", "throughput", ["--kv-cache-dtype", "fp8"], OUTPUT)
LONG_CONTEXT = ("1 stream at 3.5k", "latency", ["--batch", 1, "--input-len", 3500, "--output-len", 256], DECODE)
LONG_PROMPTS = ("prefill 16 x 2,048", "latency", LONG_PREFILL, PREFILL)
SWEEP = [streams(count) for count in (1, 4, 16, 64, 256)]
SHORT = [BENCH_PY, streams(1), streams(64)]


def float8(row):
    """The row with the 16-bit weights rounded to FP8 as they load."""
    name, bench, arguments, figure = row
    return f"{name}, fp8 weights", bench, [*arguments, "--quantization", "fp8"], figure


# Model, number of GPUs, rows.
WORK = [
    ("Qwen3-0.6B", 1, [BENCH_PY, FP8_CACHE, *SWEEP, LONG_CONTEXT, LONG_PROMPTS,
                       *map(float8, (FP8_CACHE, streams(1)))]),
    ("Qwen3-8B", 1, [BENCH_PY, *SWEEP, LONG_CONTEXT, LONG_PROMPTS,
                     *map(float8, (BENCH_PY, FP8_CACHE, *SWEEP, LONG_PROMPTS))]),
    ("Qwen3-8B-int4", 1, [BENCH_PY, *SWEEP, LONG_PROMPTS]),
    ("Llama-3.2-1B", 1, SHORT),
    ("Qwen2.5-7B", 1, SHORT),
    ("Qwen3-8B", 2, SHORT),
    ("Qwen3-8B", 4, SHORT),
]
START, CUDA_START = "start to first token", "start of CUDA"
# What --smoke puts in the place of these options.
SMALL = {"--input-len": 16, "--output-len": 4, "--batch": 2, "--max-num-batched-tokens": 64}


def write_config(folder, name, smoke):
    folder = pathlib.Path(folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {**MODELS[name], **(SMOKE if smoke else {})}
    (folder / "config.json").write_text(json.dumps(config))
    return folder, config


def tensor_shapes(config):
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        shapes |= {
            prefix + "input_layernorm.weight": [hidden], prefix + "post_attention_layernorm.weight": [hidden],
            attention + "q_proj.weight": [queries, hidden], attention + "k_proj.weight": [keys, hidden],
            attention + "v_proj.weight": [keys, hidden], attention + "o_proj.weight": [hidden, queries],
            attention + "q_norm.weight": [head], attention + "k_norm.weight": [head],
            mlp + "gate_proj.weight": [inner, hidden], mlp + "up_proj.weight": [inner, hidden],
            mlp + "down_proj.weight": [hidden, inner],
        }
    return shapes


def write_weights(folder, config):
    """A safetensors file of random bfloat16 numbers of some hundredths."""
    header, size = {}, 0
    for name, shape in tensor_shapes(config).items():
        num_bytes = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, size + num_bytes]}
        size += num_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = bytearray(os.urandom(1 << 24))
    # The high byte: a sign, and an exponent of 2^-6 or 2^-5.
    block[1::2] = bytes(block[1::2]).translate(bytes((b & 0x80) | 0x3C | (b & 1) for b in range(256)))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while size > 0:
            file.write(block[:size])
            size -= len(block)


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, encoding="utf-8", timeout=600)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} exits with {result.returncode}:\n{result.stderr}")
    return result.stdout


def seconds_of(command):
    start = time.monotonic()
    run(command)
    return time.monotonic() - start


def reference(name, model, gpus):
    """What is known of a row beside its figure: {"limit", "goal", "peers"}, each where there is one."""
    rows = json.loads(REFERENCES.read_text(encoding="utf-8"))["rows"]
    keys = ("limit", "goal", "peers")
    found = [row for row in rows if (row["name"], row["model"], row["gpus"]) == (name, model, gpus)]
    return {key: value for row in found for key, value in row.items() if key in keys}


def bench_command(bench, model, arguments, gpus):
    """The command of a row as one would type it, without `quire`."""
    parallel = ["--tensor-parallel-size", gpus] if gpus > 1 else []
    return ["bench", bench, model, "--load-format", "dummy", *arguments, *parallel]


class Report:
    """Runs the rows and prints each when it is done; `rows` has them for a file."""

    def __init__(self, args, folder):
        self.args = args
        self.models = {name: write_config(folder, name, args.smoke) for name in MODELS}
        self.rows = []
        print("| work | command | figure | GPU idle |\n|---|---|---|---|")

    def wants(self, name):
        return self.args.only in name

    def bench(self, model, gpus, name, bench, arguments, figure):
        if not self.wants(name):
            return
        shown = bench_command(bench, model, arguments, gpus)
        command = [self.args.quire, *shown[:2], self.models[model][0], *shown[3:], "--device", "cuda", "--json"]
        if self.args.smoke:
            command = [SMALL.get(before, part) for before, part in zip([None, *command], command)]
            if bench == "throughput":
                command += ["--num-seqs", 4, "--input-len", 16, "--output-len", 4]
        figures = json.loads(run(command))
        self.row(name, model, gpus, shown, round(figures[figure]), "tokens/s", gpu_idle=figures["gpu_idle"])

    def start(self):
        """From the command to the first token, and how much of that CUDA takes to start."""
        if not self.wants(START):
            return
        model = "Qwen3-0.6B"
        folder, config = self.models[model]
        write_weights(folder, config)
        rest = ["--device", "cuda", "--prompt-tokens", "1,2,3", "--max-tokens", 1, "--skip-tokenizer-init"]
        run([self.args.quire, "generate", folder, *rest])  # brings the files into the page cache
        whole = min(seconds_of([self.args.quire, "generate", folder, *rest]) for _ in range(3))
        cuda = min(seconds_of([self.args.quire, "plan", folder, "--device", "cuda"]) for _ in range(3))
        self.row(START, model, 1, ["generate", model, *rest], round(whole, 2), "s")
        self.row(CUDA_START, model, 1, ["plan", model, "--device", "cuda"], round(cuda, 2), "s")

    def row(self, name, model, gpus, arguments, figure, unit, **more):
        command = " ".join(map(str, ["quire", *arguments]))
        self.rows.append({"name": name, "model": model, "gpus": gpus, "command": command, "figure": figure,
                          "unit": unit, **reference(name, model, gpus), **more})
        where = f", {gpus} GPUs" if gpus > 1 else ""
        idle = f"{100 * more['gpu_idle']:.2f} %" if "gpu_idle" in more else ""
        print(f"| {name}, {model}{where} | {command} | {figure:,} {unit} | {idle} |", flush=True)


def about(args, folder):
    """What the figures are of: commit, date, GPU and driver."""
    plan = json.loads(run([args.quire, "plan", folder, "--device", "cuda", "--json"]))
    driver = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).splitlines()[0] \
        if shutil.which("nvidia-smi") else ""
    commit = args.commit or run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()
    return {"commit": commit, "date": datetime.date.today().isoformat(), "device": plan["device_name"],
            "driver": driver}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quire", default=ROOT / "build/release/src/quire", help="the binary [build/release's]")
    parser.add_argument("--only", default="", metavar="PART", help="rows whose name has this")
    parser.add_argument("--gpus", type=int, default=1, help="up to so many GPUs [1]")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="where the rows are written")
    parser.add_argument("--commit", help="the binary's, for the file [that of this checkout]")
    parser.add_argument("--smoke", action="store_true", help="tiny models and little work")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Report(args, folder)
        # Before the work, which takes minutes.
        head = about(args, report.models["Qwen3-0.6B"][0]) if args.json else {}
        for model, gpus, rows in WORK:
            if gpus <= args.gpus:
                for row in rows:
                    report.bench(model, gpus, *row)
        report.start()
    if args.json:
        # One row a line, so that a change of the file can be read.
        lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
        rows = ",\n".join("  " + json.dumps(row) for row in report.rows)
        args.json.write_text("{\n" + "".join(lines) + ' "rows": [\n' + rows + "\n ]\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
