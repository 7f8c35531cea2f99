"""Tiny LoRA adapters of the bundled model, written as PEFT writes them."""

import json
import random
import struct

from gguf_model import write_safetensors

HIDDEN, QUERY, VALUE, LAYERS = 256, 256, 128, 8


def write_adapter(folder, seed=0, rank=4, strength=0.15):
    """An adapter of the bundled model's q_proj and v_proj; with a `strength` of 0 it changes nothing."""
    draw = random.Random(seed)

    def matrix(rows, columns, scale):
        values = [scale * draw.uniform(-1, 1) for _ in range(rows * columns)]
        return ("F32", [rows, columns], struct.pack(f"<{len(values)}f", *values))

    tensors = {}
    for layer in range(LAYERS):
        for module, outputs in (("q_proj", QUERY), ("v_proj", VALUE)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = matrix(rank, HIDDEN, 1)
            tensors[f"{name}.lora_B.weight"] = matrix(outputs, rank, strength)
    folder.mkdir(parents=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none",
         "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "lexicon"}))
    return folder
