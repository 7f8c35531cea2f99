#!/usr/bin/env python3
"""Writes a LoRA adapter of random numbers, as PEFT saves one, for a model's config.json: for measurements.

    scripts/make_random_lora.py Qwen3-8B/config.json my-adapter --rank 16 --seed 1

Weights are bfloat16, of all seven projections of each layer, B as small as A so that the model's numbers stay finite.
--also adds the embedding, the output layer, or trained norms. --copies has trained matrices in place of those of low
rank: of the embedding, the output layer, or a projection in all layers. It needs only the standard library.
"""

import argparse
import json
import math
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


def tensors_of(config, rank, also, copies):
    """Name, shape and middle of the random numbers of each of the adapter's tensors."""
    def matrices(module, outputs, inputs, leaves=("lora_A.weight", "lora_B.weight")):
        if module.split(".")[-1] in copies:
            yield f"{module}.weight", [outputs, inputs], 0.0
            return
        yield f"{module}.{leaves[0]}", [rank, inputs], 0.0
        yield f"{module}.{leaves[1]}", [outputs, rank], 0.0

    hidden, vocab = config["hidden_size"], config["vocab_size"]
    for layer in range(config["num_hidden_layers"]):
        for module, (outputs, inputs) in projections(config).items():
            yield from matrices(f"model.layers.{layer}.{module}", outputs, inputs)
        if "norms" in also:
            for norm in ("input_layernorm", "post_attention_layernorm"):
                yield f"model.layers.{layer}.{norm}.weight", [hidden], 1.0
        if "head_norms" in also:
            for norm in ("q_norm", "k_norm"):
                yield f"model.layers.{layer}.self_attn.{norm}.weight", [config["head_dim"]], 1.0
    if "norms" in also:
        yield "model.norm.weight", [hidden], 1.0
    if "embed_tokens" in copies:
        yield from matrices("model.embed_tokens", vocab, hidden)
    elif "embed_tokens" in also:
        yield from matrices("model.embed_tokens", hidden, vocab, ("lora_embedding_A", "lora_embedding_B"))
    if "lm_head" in also + copies:
        yield from matrices("lm_head", vocab, hidden)


def random_bfloat16(generator, count, middle):
    """Numbers up to 0.02 from the middle. Long matrices repeat a piece: drawing each number takes minutes."""
    piece = bytearray()
    for _ in range(min(count, 4099)):
        piece += struct.pack("<f", generator.uniform(middle - 0.02, middle + 0.02))[2:]
    return bytes((piece * (2 * count // len(piece) + 1))[:2 * count])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--also", nargs="+", default=[], choices=("embed_tokens", "lm_head", "norms", "head_norms"))
    parser.add_argument("--copies", nargs="+", default=[], metavar="MODULE")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    generator = random.Random(arguments.seed)
    header, pieces, offset = {}, [], 0
    for name, shape, middle in tensors_of(config, arguments.rank, arguments.also, arguments.copies):
        data = random_bfloat16(generator, math.prod(shape), middle)
        header[f"base_model.model.{name}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        pieces.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with open(arguments.folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in pieces:
            file.write(data)
    modules = [name.split(".")[1] for name in projections(config)] + [
        name for name in arguments.also if not name.endswith("norms")]
    modules = [name for name in modules if name not in arguments.copies]
    saved = list(arguments.copies)
    if "norms" in arguments.also:
        saved += ["input_layernorm", "post_attention_layernorm", "norm"]
    if "head_norms" in arguments.also:
        saved += ["q_norm", "k_norm"]
    (arguments.folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": arguments.rank, "lora_alpha": 2 * arguments.rank,
        "target_modules": sorted(modules), "modules_to_save": saved}, indent=2) + "\n")


if __name__ == "__main__":
    main()
