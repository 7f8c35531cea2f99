#!/usr/bin/env python3
"""Makes a model with the answers of another one and more layers, which add nothing.

    scripts/deepen_model.py models/lexicon /tmp/deep --layers 64

The layers that are added are copies of the last one whose output projections (o_proj, down_proj) are zero. So the
model that it was made from drafts for it without a mistake, and what speculative decoding can gain at most on a
machine is measured without a trained pair (docs/speculative.md). Takes a folder with one model.safetensors of a Llama,
Mistral or Qwen model; needs nothing but Python.
"""

import argparse
import json
import pathlib
import shutil
import struct


def read_tensors(path):
    """The header's entries by name, and the bytes behind it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, memoryview(data)[8 + length :]


def write_tensors(path, tensors):
    """`tensors`: (name, dtype, shape, bytes) each."""
    header, end = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for *_, data in tensors:
            file.write(data)


def deepen(header, data, num_layers, wanted):
    last = f"model.layers.{num_layers - 1}."
    tensors = []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors.append((name, entry["dtype"], entry["shape"], data[begin:end]))
        if not name.startswith(last):
            continue
        is_output = ".o_proj." in name or ".down_proj." in name
        content = bytes(end - begin) if is_output else data[begin:end]
        for layer in range(num_layers, wanted):
            copy = f"model.layers.{layer}." + name.removeprefix(last)
            tensors.append((copy, entry["dtype"], entry["shape"], content))
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, required=True)
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text())
    num_layers = config["num_hidden_layers"]
    if arguments.layers <= num_layers:
        parser.error(f"--layers is {arguments.layers}; expected more than the model's {num_layers}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file in arguments.model.glob("*"):
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, arguments.out)
    header, data = read_tensors(arguments.model / "model.safetensors")
    write_tensors(arguments.out / "model.safetensors", deepen(header, data, num_layers, arguments.layers))
    config["num_hidden_layers"] = arguments.layers
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
