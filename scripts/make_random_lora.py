#!/usr/bin/env python3
"""Writes a LoRA adapter of random numbers, as PEFT saves one, for a model's config.json: for measurements.

    scripts/make_random_lora.py Qwen3-8B/config.json my-adapter --rank 16 --seed 1

Weights are bfloat16, of all seven projections of each layer, B as small as A so that the model's numbers stay finite. It
needs only the standard library.
"""

import argparse
import json
import pathlib
import random
import struct


def projections(config):
    """The inputs and outputs of each module of a layer."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    queries, keys = heads * size, config.get("num_key_value_heads", heads) * size
    return {"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner)}


def random_bfloat16(generator, count):
    """Numbers up to 0.02 either way. Long matrices repeat a piece: drawing each number takes minutes."""
    piece = bytearray()
    for _ in range(min(count, 4099)):
        piece += struct.pack("<f", generator.uniform(-0.02, 0.02))[2:]
    return bytes((piece * (2 * count // len(piece) + 1))[:2 * count])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    generator = random.Random(arguments.seed)
    modules = projections(config)
    header, pieces, offset = {}, [], 0
    for layer in range(config["num_hidden_layers"]):
        for module, (outputs, inputs) in modules.items():
            for leaf, shape in (("lora_A", [arguments.rank, inputs]), ("lora_B", [outputs, arguments.rank])):
                data = random_bfloat16(generator, shape[0] * shape[1])
                name = f"base_model.model.model.layers.{layer}.{module}.{leaf}.weight"
                header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
                pieces.append(data)
                offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with open(arguments.folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in pieces:
            file.write(data)
    (arguments.folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": arguments.rank, "lora_alpha": 2 * arguments.rank,
        "target_modules": sorted(name.split(".")[1] for name in modules)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
