#!/usr/bin/env python3
"""Writes src/ops/cuda/linear/algorithms_table.cc from files of `quire tune --output`.

    scripts/linear_algorithms_table.py [--output PATH] FILE...

What several files say of one shape is taken from the last. Without a FILE the table is empty. The files are
read as they are: quire checks what they hold (`quire tune --linear-algorithms FILE`).
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]
SHAPE = ("compute_capability", "multiprocessors", "dtype", "out_dtype", "n", "k", "rows")
TYPES = ("dtype", "out_dtype")
ALGORITHM = ("id", "tile", "stages", "split_k", "reduction", "swizzle", "custom", "inner_shape", "cluster_shape")
DTYPES = {"float32": "kFloat32", "bfloat16": "kBFloat16", "float16": "kFloat16"}  # in DType's order
SOURCE = """\
// The algorithms that `quire tune` found best, by GPU and shape. Written by
// scripts/linear_algorithms_table.py from the files of `quire tune --output`.
#include <array>

#include "ops/cuda/linear/algorithms.h"

namespace quire::ops {{
namespace {{

constexpr std::array<LinearAlgorithmEntry, {count}> kTable = {entries};

}}  // namespace

std::span<const LinearAlgorithmEntry> built_in_linear_algorithms() {{
  return kTable;
}}

}}  // namespace quire::ops
"""


def order(entry):
    """What sorts entries as LinearShape's operator<=> does."""
    return tuple(list(DTYPES).index(entry[name]) if name in TYPES else int(entry[name]) for name in SHAPE)


def initializer(entry):
    """A LinearAlgorithmEntry, its fields in their order."""
    values = [f"DType::{DTYPES[entry[name]]}" if name in TYPES else str(int(entry[name])) for name in SHAPE]
    shape = f"{{{{{', '.join(values[:2])}}}, {', '.join(values[2:])}}}"
    algorithm = "std::nullopt"
    if entry["algorithm"] is not None:
        algorithm = f"LinearAlgorithm{{{', '.join(str(int(entry['algorithm'][name])) for name in ALGORITHM)}}}"
    return f"LinearAlgorithmEntry{{{shape}, {algorithm}}}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "src" / "ops" / "cuda" / "linear" / "algorithms_table.cc")
    parser.add_argument("files", metavar="FILE", type=pathlib.Path, nargs="*")
    arguments = parser.parse_args()
    entries = {}
    for path in arguments.files:
        for entry in json.loads(path.read_text(encoding="utf-8"))["linear_algorithms"]:
            entries[order(entry)] = entry
    lines = [initializer(entries[place]) for place in sorted(entries)]
    text = SOURCE.format(count=len(lines), entries="{{" + ",\n".join(lines) + "}}" if lines else "{}")
    laid_out = subprocess.run(["clang-format-14", f"--assume-filename={ROOT}/src/ops/cuda/linear/table.cc"], input=text,
                              encoding="utf-8", capture_output=True, check=True).stdout
    arguments.output.write_text(laid_out, encoding="utf-8")
    print(f"{arguments.output}: {len(lines)} entries")


if __name__ == "__main__":
    main()
