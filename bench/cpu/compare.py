#!/usr/bin/env python3
"""quire beside llama.cpp on this machine's CPU, in turn, at three precisions.

    bench/cpu/compare.py                          builds llama.cpp first, which takes some minutes
    bench/cpu/compare.py --threads 8 --turns 5
    bench/cpu/compare.py --only "decode|start"    rows whose name this regular expression finds
    bench/cpu/compare.py --llama-cpp FOLDER       programs that are built already
    bench/cpu/compare.py --smoke                  a tiny model and little work: whether it all runs

Both read the same GGUF files: random weights in Qwen3-0.6B's shape as BF16, Q8_0 and Q4_K_M. quire also rounds
the BF16 file itself (--quantization), and starts from what `quire quantize` has made of it. Figures are medians of all turns with the lowest and highest, in tokens
a second; limits are what the machine reads a second over the bytes of a token, and its arithmetic over the
operations of one, as quire measures them in the same run. An idle machine is needed.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "e2e"), str(pathlib.Path(__file__).parent)]
import gguf_model  # noqa: E402
import llama_cpp  # noqa: E402
import measure_gpu  # noqa: E402

PRECISIONS = {"bf16": ("BF16", []), "8 bits": ("Q8_0", ["--quantization", "int8"]),
              "4 bits": ("Q4_K_M", ["--quantization", "int4"])}
LIMITS = {"prefill": ("achieved_gflops", "peak_gflops"), "decode": ("achieved_gb_s", "read_gb_s")}


class Quire:
    """Its figures are tokens a second and what part of the limit that is; `options` go to every command."""

    def __init__(self, binary, threads, options=()):
        self.binary, self.threads, self.options = binary, threads, options

    def _bench(self, kind, model, batch, prompt, output, *more):
        answer = json.loads(llama_cpp.run(
            self.binary, "bench", "latency", model, "--device", "cpu", "--skip-tokenizer-init", "--json",
            "--threads", self.threads, "--num-iters", 1, "--batch", batch, "--input-len", prompt, "--output-len", output,
            *self.options, *more))
        achieved, limit = LIMITS[kind]
        return answer[f"{kind}_tokens_per_s"], answer[achieved] / answer[limit]

    def prefill(self, model, tokens):
        return self._bench("prefill", model, 1, tokens, 1)

    def decode(self, model, tokens, context):
        return self._bench("decode", model, 1, max(1, context), tokens + 1)

    def decode_int8_cache(self, model, tokens, context):
        return self._bench("decode", model, 1, context, tokens + 1, "--kv-cache-dtype", "int8")

    def streams(self, model, count, prompt, tokens):
        return self._bench("decode", model, count, prompt, tokens + 1)

    def start(self, model):
        """Seconds from the command to the first token, and the most memory that it took, in MiB."""
        began = time.monotonic()
        process = subprocess.Popen(
            [self.binary, "generate", str(model), "--device", "cpu", "--skip-tokenizer-init", "--threads",
             str(self.threads), "--max-model-len", "2048", "--prompt-tokens", "1,2,3", "--max-tokens", "1",
             *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"quire generate {model} fails:\n{error.decode()}")
        return time.monotonic() - began, usage.ru_maxrss / 1024


def rows_of(smoke):
    """Name, method, its arguments."""
    size = 8 if smoke else 1
    return [(f"prefill of {512 // size}", "prefill", (512 // size,)),
            ("decode, 1 stream", "decode", (64 // size, 0)),
            (f"decode, 1 stream at {8192 // size}", "decode", (32 // size, 8192 // size)),
            (f"decode, 1 stream at {8192 // size}, int8 cache", "decode_int8_cache", (32 // size, 8192 // size)),
            ("decode, 16 streams", "streams", (16, 128 // size, 32 // size)),
            ("decode, 64 streams", "streams", (64, 128 // size, 32 // size))]


def make_models(folder, llama, smoke):
    """The GGUF file of each precision."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "smoke" if smoke else "Qwen3-0.6B"
    dense = folder / f"{name}-BF16.gguf"
    if not dense.exists():
        source, config = measure_gpu.write_config(folder, "Qwen3-0.6B", smoke)
        if smoke:  # K-quants have blocks of 256
            config |= {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
            (source / "config.json").write_text(json.dumps(config))
        measure_gpu.write_weights(source, config)
        gguf = gguf_model.convert(source)
        gguf.string("tokenizer.ggml.model", "none")
        gguf.integer("qwen3.vocab_size", config["vocab_size"])
        gguf_model.write(gguf, dense)
    return {name_of: dense if scheme == "BF16" else
            llama.quantise(dense, dense.with_name(dense.name.replace("BF16", scheme)), scheme)
            for name_of, (scheme, _) in PRECISIONS.items()}


def engines_of(arguments, llama, models):
    """(precision, engine, model): the peers of a row."""
    engines = []
    for precision, (scheme, rounding) in PRECISIONS.items():
        engines.append((precision, f"llama.cpp {scheme}", llama, models[precision]))
        engines.append((precision, f"quire {scheme}", Quire(arguments.quire, arguments.threads), models[precision]))
        if rounding:
            engines.append((precision, f"quire {rounding[1]}", Quire(arguments.quire, arguments.threads, rounding),
                            models["bf16"]))
    return engines


def saved_models(arguments, dense):
    """What `quire quantize` writes of the dense file: {its name: the folder}."""
    models = {}
    for bits in ("int8", "int4"):
        folder = dense.with_name(f"{dense.stem}-{bits}")
        if not folder.exists():
            llama_cpp.run(arguments.quire, "quantize", dense, folder, "--scheme", bits, "--output-layer", "int8",
                          "--threads", arguments.threads)
        models[f"quire saved {bits}"] = folder
    return models


def measure_row(engines, method, parameters, turns):
    """{engine: the figures of all turns}; the order changes from turn to turn."""
    figures = {}
    for turn in range(turns):
        for _, name, engine, model in engines if turn % 2 == 0 else reversed(engines):
            figures.setdefault(name, []).append(getattr(engine, method)(model, *parameters))
    return figures


def summary(values):
    """The median with its spread; of pairs also the second's median."""
    speeds = [value[0] if isinstance(value, tuple) else value for value in values]
    row = {"median": statistics.median(speeds), "lowest": min(speeds), "highest": max(speeds)}
    if isinstance(values[0], tuple):
        row["of_limit"] = statistics.median(value[1] for value in values)
    return row


def print_row(name, row):
    limit = f"{100 * row['of_limit']:4.0f} % of the limit" if "of_limit" in row else ""
    print(f"  {name:20} {row['median']:8.1f}  ({row['lowest']:.1f} to {row['highest']:.1f}) {limit}", flush=True)


def print_starts(starters, turns):
    """Of (name, Quire, model)."""
    print("start to first token, s (and peak memory, MiB)")
    rows = {}
    for name, engine, model in starters:
        engine.start(model)  # the file is in the page cache then
        starts = [engine.start(model) for _ in range(turns)]
        rows[name] = {"seconds": statistics.median(start for start, _ in starts),
                      "mib": statistics.median(memory for _, memory in starts)}
        print(f"  {name:20} {rows[name]['seconds']:8.2f}  ({rows[name]['mib']:.0f})", flush=True)
    return rows


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default=str(ROOT / "build" / "release" / "src" / "quire"))
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="the folder of llama-bench and its like")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "compare", help="for sources and models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name it finds")
    parser.add_argument("--json", type=pathlib.Path, help="writes the figures too")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    programs = arguments.llama_cpp or llama_cpp.build(arguments.work)
    llama = llama_cpp.LlamaCpp(programs, arguments.threads)
    models = make_models(arguments.work / "models", llama, arguments.smoke)
    engines = engines_of(arguments, llama, models)
    table = {}
    for name, method, parameters in rows_of(arguments.smoke):
        if not re.search(arguments.only, name):
            continue
        print(f"{name}, {arguments.threads} threads, tokens/s", flush=True)
        figures = measure_row(engines, method, parameters, arguments.turns)
        table[name] = {engine: summary(values) for engine, values in figures.items()}
        for engine, row in table[name].items():
            print_row(engine, row)
    start = "start to first token"
    if re.search(arguments.only, start):
        quire = Quire(arguments.quire, arguments.threads)
        starters = [(name, engine, model) for _, name, engine, model in engines if isinstance(engine, Quire)]
        starters += [(name, quire, model) for name, model in saved_models(arguments, models["bf16"]).items()]
        table[start] = print_starts(starters, arguments.turns)
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "rows": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
