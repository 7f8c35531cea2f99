#!/usr/bin/env python3
"""Measures quire on the GPUs of this machine and prints the rows of docs/performance.md's table.

    scripts/measure_gpu.py                        everything that the machine has GPUs for
    scripts/measure_gpu.py --only one-stream      what has this in its name
    scripts/measure_gpu.py --smoke                tiny models and little work: whether it all runs

Models are configs of Qwen's with random weights; a checkpoint of 1.2 GB is written for the start. Standard library alone.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "hidden_act": "silu",
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "max_position_embeddings": 40960,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "torch_dtype": "bfloat16",
    "use_sliding_window": False, "vocab_size": 151936,
}
MODELS = {
    "0.6B": {**COMMON, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
             "num_hidden_layers": 28, "tie_word_embeddings": True},
    "8B": {**COMMON, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
           "num_hidden_layers": 36, "tie_word_embeddings": False},
}
SMOKE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "num_hidden_layers": 2, "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2}

# Name, bench, model, its arguments, the figure. Goals and limits stand in docs/performance.md.
OUTPUT, DECODE, PREFILL = "output_tokens_per_s", "decode_tokens_per_s", "prefill_tokens_per_s"
LONG_PREFILL = ["--batch", 16, "--input-len", 2048, "--output-len", 1, "--max-num-batched-tokens", 32768]
WORK = [
    ("bench.py", "throughput", "0.6B", [], OUTPUT),
    ("bench.py, fp8 KV cache", "throughput", "0.6B", ["--kv-cache-dtype", "fp8"], OUTPUT),
    ("bench.py", "throughput", "8B", [], OUTPUT),
    ("one-stream", "latency", "0.6B", ["--batch", 1, "--input-len", 128, "--output-len", 512], DECODE),
    ("one-stream", "latency", "8B", ["--batch", 1, "--input-len", 128, "--output-len", 512], DECODE),
    ("one-stream at 3.5k", "latency", "0.6B", ["--batch", 1, "--input-len", 3500, "--output-len", 256], DECODE),
    ("64 streams", "latency", "0.6B", ["--batch", 64, "--input-len", 128, "--output-len", 256], DECODE),
    ("prefill 16 x 2,048", "latency", "0.6B", LONG_PREFILL, PREFILL),
    ("prefill 16 x 2,048", "latency", "8B", LONG_PREFILL, PREFILL),
]
PARALLEL = [
    ("one-stream", "latency", "8B", ["--batch", 1, "--input-len", 128, "--output-len", 512], DECODE),
    ("bench.py", "throughput", "8B", [], OUTPUT),
]
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


class Report:
    def __init__(self, args, folder):
        self.args = args
        self.models = {name: write_config(folder, name, args.smoke) for name in MODELS}
        print("| work | command | figure | GPU idle |\n|---|---|---|---|")

    def wants(self, name):
        return self.args.only in name

    def bench(self, name, bench, model, arguments, figure, gpus=1):
        if not self.wants(name):
            return
        shown = ["quire", "bench", bench, model, "--load-format", "dummy", *arguments]
        if gpus > 1:
            shown += ["--tensor-parallel-size", gpus]
        command = [self.args.quire, *shown[1:3], self.models[model][0], *shown[4:], "--device", "cuda", "--json"]
        if self.args.smoke:
            command = [SMALL.get(before, part) for before, part in zip([None, *command], command)]
            if bench == "throughput":
                command += ["--num-seqs", 4, "--input-len", 16, "--output-len", 4]
        figures = json.loads(run(command))
        where = f", {gpus} GPUs" if gpus > 1 else ""
        self.row(f"{name}, {model}{where}", " ".join(map(str, shown)), f"{figures[figure]:,.0f} tokens/s",
                 f"{100 * figures['gpu_idle']:.2f} %")

    def start(self):
        """From the command to the first token, and how much of that CUDA takes to start."""
        if not self.wants("start"):
            return
        folder, config = self.models["0.6B"]
        write_weights(folder, config)
        generate = [self.args.quire, "generate", folder, "--device", "cuda", "--prompt-tokens", "1,2,3",
                    "--max-tokens", 1, "--skip-tokenizer-init"]
        run(generate)  # brings the files into the page cache
        whole = min(seconds_of(generate) for _ in range(3))
        cuda = min(seconds_of([self.args.quire, "plan", folder, "--device", "cuda"]) for _ in range(3))
        self.row("start to first token, 0.6B", "quire generate ... --max-tokens 1", f"{whole:.2f} s", "")
        self.row("of it CUDA's start", "quire plan", f"{cuda:.2f} s", "")

    @staticmethod
    def row(*cells):
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quire", default=ROOT / "build/release/src/quire", help="the binary [build/release's]")
    parser.add_argument("--only", default="", metavar="PART", help="work whose name has this")
    parser.add_argument("--gpus", type=int, default=1, help="up to so many GPUs [1]")
    parser.add_argument("--smoke", action="store_true", help="tiny models and little work")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Report(args, folder)
        for work in WORK:
            report.bench(*work)
        report.start()
        for gpus in (2, 4):
            for work in PARALLEL:
                if gpus <= args.gpus:
                    report.bench(*work, gpus=gpus)


if __name__ == "__main__":
    sys.exit(main())
