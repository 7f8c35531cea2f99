#!/usr/bin/env python3
"""Makes tests/golden/gguf/blocks.json with gguf-py: random blocks of each quantised type, and what they stand for.

    pip install gguf==0.17.1
    scripts/make_gguf_goldens.py

The blocks' bytes and the float32 values are hexadecimal; float16 numbers of a block that would not be finite are
replaced by others.
"""
import json
import pathlib

import numpy
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "gguf" / "blocks.json"
SEED = 13
# Where in a block its float16 numbers are.
FLOAT16 = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
           "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
VALUES = 512  # of each type


def random_blocks(rng, name, count, size):
    blocks = rng.integers(0, 256, (count, size), dtype=numpy.uint8)
    for place in FLOAT16[name]:
        scales = rng.normal(0, 0.01, count).astype(numpy.float16)
        scales[0] = numpy.float16(-6e-8)  # a subnormal number
        blocks[:, place:place + 2] = scales.reshape(count, 1).view(numpy.uint8)
    return blocks


def main():
    rng = numpy.random.default_rng(SEED)
    goldens = {}
    for name in FLOAT16:
        kind = GGMLQuantizationType[name]
        values, size = GGML_QUANT_SIZES[kind]
        blocks = random_blocks(rng, name, VALUES // values, size)
        numbers = dequantize(blocks, kind).astype("<f4")
        goldens[name] = {"blocks": blocks.tobytes().hex(), "values": numbers.tobytes().hex()}
    lines = [f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items()]
    GOLDEN.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
