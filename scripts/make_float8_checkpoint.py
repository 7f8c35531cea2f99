#!/usr/bin/env python3
"""Quantises a checkpoint's linear layers to float8 e4m3 with a scale for each output feature.

    python3 scripts/make_float8_checkpoint.py MODEL OUT [--dequantised OUT] [--ignore LAYER ...]

Writes OUT in the layout of compressed-tensors' float-quantized format, as llm-compressor publishes FP8 models:
<layer>.weight F8_E4M3 [n, k], <layer>.weight_scale BF16 [n, 1], and quantization_config in config.json. The output
layer and what --ignore names stay as they are. --dequantised writes the same model as float32: a float8 number times a
bfloat16 scale has 12 bits, so its weights are exactly the quantised ones.

Needs nothing but Python, and takes its time: for the tiny models of the tests, which were made with

    python3 scripts/make_float8_checkpoint.py tests/golden/models/llama-bias tests/golden/float8/quantised \\
        --dequantised tests/golden/float8/dequantised --ignore model.layers.1.mlp.down_proj
"""
import argparse
import bisect
import json
import math
import shutil
import struct
from pathlib import Path

LARGEST = 448.0
# The numbers from 0 up, each at the place that is its bits.
FLOAT8 = [
    math.ldexp(bits & 7, -9) if bits < 8 else math.ldexp(8 + (bits & 7), (bits >> 3) - 10) for bits in range(0x7F)
]


def float8_bits(value):
    """The nearest number, of two as near the one with even bits."""
    magnitude = min(abs(value), LARGEST)
    high = bisect.bisect_left(FLOAT8, magnitude)
    low = max(high - 1, 0)
    below, above = magnitude - FLOAT8[low], FLOAT8[high] - magnitude
    bits = low if below < above or (below == above and low % 2 == 0) else high
    return bits | (0x80 if math.copysign(1, value) < 0 else 0)


def bfloat16_bits(value):
    """Rounded up: as a scale, no weight over it is beyond the largest number."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0xFFFF) >> 16


def from_bfloat16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def read_floats(dtype, data):
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if dtype == "BF16":
        return [from_bfloat16(bits) for bits in struct.unpack(f"<{len(data) // 2}H", data)]
    raise SystemExit(f"a tensor is {dtype}; expected F32, F16 or BF16")


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        tensors[name] = (tensor["dtype"], tensor["shape"], content[8 + length + begin : 8 + length + end])
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def quantise(dtype, shape, data):
    """The bytes of the weight, of its scales, and of the weight that they stand for as float32."""
    columns = shape[1]
    values = read_floats(dtype, data)
    numbers, scales, dequantised = bytearray(), b"", []
    for begin in range(0, len(values), columns):
        row = values[begin : begin + columns]
        largest = max(map(abs, row)) or 1.0
        scale_bits = bfloat16_bits(largest / LARGEST)
        scale = from_bfloat16(scale_bits)
        bits = [float8_bits(value / scale) for value in row]
        numbers += bytes(bits)
        scales += struct.pack("<H", scale_bits)
        dequantised += [(-1 if b & 0x80 else 1) * FLOAT8[b & 0x7F] * scale for b in bits]
    return bytes(numbers), scales, struct.pack(f"<{len(dequantised)}f", *dequantised)


def quantization_config(ignore):
    scheme = {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "block_structure": None,
              "actorder": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": scheme | {"strategy": "channel", "dynamic": False, "observer": "minmax"},
                "input_activations": scheme | {"strategy": "token", "dynamic": True, "observer": None},
                "output_activations": None,
            }
        },
        "ignore": ignore,
        "kv_cache_scheme": None,
    }


def write_model(source, out, tensors, config):
    out.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.suffix != ".safetensors" and path.name not in ("config.json", "golden.json"):
            shutil.copy(path, out)
    write_safetensors(out / "model.safetensors", tensors)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dequantised", type=Path)
    parser.add_argument("--ignore", nargs="*", default=[], metavar="LAYER")
    args = parser.parse_args()

    config = json.loads((args.model / "config.json").read_text())
    ignore = ["lm_head", *args.ignore]
    quantised, dequantised = {}, {}
    for name, (dtype, shape, data) in read_safetensors(args.model / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if not layer.endswith("_proj") or layer == name or layer in ignore:
            quantised[name] = dequantised[name] = (dtype, shape, data)
            continue
        numbers, scales, floats = quantise(dtype, shape, data)
        quantised[name] = ("F8_E4M3", shape, numbers)
        quantised[layer + ".weight_scale"] = ("BF16", [shape[0], 1], scales)
        dequantised[name] = ("F32", shape, floats)
    write_model(args.model, args.out, quantised, config | {"quantization_config": quantization_config(ignore)})
    if args.dequantised:
        write_model(args.model, args.dequantised, dequantised, config)


if __name__ == "__main__":
    main()
