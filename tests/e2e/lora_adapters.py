"""Tiny LoRA adapters of the bundled model, written as PEFT writes them."""

import json
import math
import random
import struct

from gguf_model import write_safetensors

HIDDEN, QUERY, VALUE, HEAD, LAYERS, VOCAB = 256, 256, 128, 64, 8, 8192


def write_adapter(folder, seed=0, rank=4, strength=0.15, extras=False, copies=False):
    """An adapter of the bundled model's q_proj and v_proj; with a `strength` of 0 it changes nothing. `extras` adds
    matrices of the embedding and of the output layer, and trained norms; `copies` trained o_proj and norms of keys."""
    draw = random.Random(seed)

    def tensor(shape, low, high):
        values = [draw.uniform(low, high) for _ in range(math.prod(shape))]
        return ("F32", shape, struct.pack(f"<{len(values)}f", *values))

    def matrix(rows, columns, scale):
        return tensor([rows, columns], -scale, scale)

    tensors = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}"
        for module, outputs in (("q_proj", QUERY), ("v_proj", VALUE)):
            tensors[f"{name}.self_attn.{module}.lora_A.weight"] = matrix(rank, HIDDEN, 1)
            tensors[f"{name}.self_attn.{module}.lora_B.weight"] = matrix(outputs, rank, strength)
        if copies:
            tensors[f"{name}.self_attn.o_proj.weight"] = matrix(HIDDEN, QUERY, strength)
            tensors[f"{name}.self_attn.k_norm.weight"] = tensor([HEAD], 0.5, 1.5)
        if extras:
            tensors[f"{name}.input_layernorm.weight"] = tensor([HIDDEN], 0.5, 1.5)
    if extras:
        tensors["base_model.model.model.norm.weight"] = tensor([HIDDEN], 0.5, 1.5)
        tensors["base_model.model.model.embed_tokens.lora_embedding_A"] = matrix(rank, VOCAB, 1)
        tensors["base_model.model.model.embed_tokens.lora_embedding_B"] = matrix(HIDDEN, rank, strength)
        tensors["base_model.model.lm_head.lora_A.weight"] = matrix(rank, HIDDEN, 1)
        tensors["base_model.model.lm_head.lora_B.weight"] = matrix(VOCAB, rank, strength)
    saved = (["input_layernorm", "norm"] if extras else []) + (["o_proj", "k_norm"] if copies else [])
    folder.mkdir(parents=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none",
         "target_modules": ["q_proj", "v_proj"] + (["embed_tokens", "lm_head"] if extras else []),
         "modules_to_save": saved or None,
         "base_model_name_or_path": "lexicon"}))
    return folder
