#!/usr/bin/env python3
"""Makes tests/golden/lora/: small LoRA adapters of tests/golden/models/, and what PEFT computes with them.

    python3 scripts/make_lora_goldens.py [--out tests/golden/lora] [CASE ...]

Needs torch, transformers, peft 0.21 and safetensors; runs on a CPU in a minute or two. Weights and prompts come from
fixed seeds. Each case is a folder as PEFT writes an adapter (adapter_config.json, adapter_model.safetensors) with:

golden.json
    case, about, and the versions of the packages
    base            the folder of tests/golden/models/ that the adapter is for
    prompts         as scripts/make_model_goldens.py writes them: prompt_token_ids, logits, logit_positions,
                    output_token_ids, min_margin
golden.safetensors
    the logits

Everything is computed in float32 by PEFT, with the adapter beside the weights, from the folder as it was read back.
Adapters are drawn large enough for each of their parts to change the logits visibly; each prompt's logits are checked
against float64 and against the base's.
"""
import argparse
import json
import shutil
import zlib
from pathlib import Path

import peft
import torch
import transformers
from make_model_goldens import MAX_ROUNDING, MIN_MARGIN, logits_of, write_golden
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).parent.parent
STEPS = 16
MIN_DISTINCT = 5  # tokens of a greedy output
MIN_CHANGE = 1e-2  # of the logits by the adapter, relative
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = ATTENTION + ["gate_proj", "up_proj", "down_proj"]


# name -> about, base, LoraConfig's fields, and how the folder is written:
#   dtype       of the adapter's weights
#   config      fields of adapter_config.json that are replaced
#   rename      from each tensor's name to what an older version of PEFT called it
CASES = {
    "lora": dict(
        about="two modules as a list, a tied base",
        base="qwen3-tied",
        lora=dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    ),
    "rslora": dict(
        about="rsLoRA, all-linear, as a person writes it",
        base="llama-bias",
        lora=dict(r=3, lora_alpha=2, use_rslora=True, target_modules="all-linear"),
        config=dict(target_modules="all-linear"),
    ),
    "dora": dict(
        about="DoRA of layers with a bias",
        base="qwen3-bias-sharded",
        lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=ATTENTION + ["down_proj"]),
    ),
    "patterns": dict(
        about="a regular expression, rank_pattern, alpha_pattern, rsLoRA with DoRA",
        base="llama3",
        lora=dict(
            r=2,
            lora_alpha=4,
            use_rslora=True,
            use_dora=True,
            target_modules=r".*\.(?:self_attn\.(q|v)_proj|mlp\.(?:up|down)_proj)",
            rank_pattern={"q_proj": 5, r"layers\.1\.mlp\.up_proj": 1},
            alpha_pattern={r"^model\.layers\.0\..*": 3.5, "v_proj": 1},
        ),
    ),
    "layers": dict(
        about="layers_to_transform with exclude_modules",
        base="qwen3-bias-sharded",
        lora=dict(
            r=4,
            lora_alpha=4,
            target_modules=ALL,
            exclude_modules=["model.layers.2.mlp.up_proj", "k_proj"],
            layers_to_transform=[0, 2],
            layers_pattern="layers",
        ),
    ),
    "embedding": dict(
        about="adapters of the embedding and the output layer, saved with the embedding itself",
        base="qwen3-bias-sharded",
        lora=dict(r=3, lora_alpha=3, target_modules=["embed_tokens", "lm_head", "o_proj"]),
    ),
    "embedding-dora": dict(
        about="DoRA of the embedding and the output layer",
        base="qwen3-bias-sharded",
        lora=dict(r=2, lora_alpha=3, use_dora=True, target_modules=["embed_tokens", "lm_head"]),
        save_embedding=False,
    ),
    "embedding-tied": dict(
        about="an adapter of an embedding that is the output layer, too: merged, the two differ",
        base="qwen2-tied",
        lora=dict(r=3, lora_alpha=3, target_modules=["embed_tokens", "gate_proj"]),
        save_embedding=False,
    ),
    "head-tied": dict(
        about="an adapter of an output layer that is the embedding, too",
        base="qwen2-tied",
        lora=dict(r=3, lora_alpha=3, target_modules=["lm_head"]),
        save_embedding=False,
    ),
    "ensure-tied": dict(
        about="ensure_weight_tying: an adapter of an embedding that is the output layer, too, of both",
        base="qwen2-tied",
        lora=dict(r=3, lora_alpha=3, target_modules=["embed_tokens", "v_proj"], ensure_weight_tying=True),
        save_embedding=False,
    ),
    "ensure-tied-saved": dict(
        about="ensure_weight_tying: a trained copy of an embedding that is the output layer, too, of both",
        base="qwen2-tied",
        lora=dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"],
                  ensure_weight_tying=True),
    ),
    "saved": dict(
        about="modules_to_save: an embedding, an output layer and norms",
        base="qwen3-bias-sharded",
        lora=dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head", "norm"]),
    ),
    "saved-tied": dict(
        about="modules_to_save: the output layer of a tied model, and the norms before attention",
        base="qwen2-tied",
        lora=dict(r=2, lora_alpha=4, target_modules=["o_proj"], modules_to_save=["lm_head", "input_layernorm"]),
    ),
    "biases": dict(
        about="bias all: trained biases of the base",
        base="llama-bias",
        lora=dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], bias="all"),
    ),
    "biases-lora-only": dict(
        about="bias lora_only",
        base="llama-bias",
        lora=dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], bias="lora_only"),
    ),
    "lora-bias": dict(
        about="lora_bias: lora_B has a bias of its own",
        base="llama-bias",
        lora=dict(r=2, lora_alpha=3, target_modules=["k_proj", "up_proj"], lora_bias=True),
    ),
    "fused": dict(
        about="projections that are one matrix in the checkpoint; bfloat16 adapters",
        base="phi3-sliding",
        lora=dict(r=2, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj"]),
        dtype=torch.bfloat16,
    ),
    "float16": dict(
        about="float16 adapters",
        base="mistral-sliding",
        lora=dict(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"]),
        dtype=torch.float16,
    ),
    "old-names": dict(
        about="the names of PEFT's older versions, with the adapter's name in them, DoRA's vector among them",
        base="qwen2-tied",
        lora=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["q_proj"], modules_to_save=["norm"]),
        rename=lambda name: (
            name.replace("lora_A.", "lora_A.default.")
            .replace("lora_B.", "lora_B.default.")
            .replace("lora_magnitude_vector", "lora_magnitude_vector.default")
            .replace("model.norm.", "model.norm.modules_to_save.default.")
        ),
    ),
}


def load(base, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager").eval()


def draw(model, generator):
    """Random weights for every part of the adapter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_magnitude_vector" in name:
                parameter.mul_(1 + 0.3 * noise)
            elif "lora_" in name:
                parameter.copy_(noise * (0.4 if name.endswith(".bias") else 0.25))
            elif "modules_to_save" in name or (parameter.requires_grad and name.endswith(".bias")):
                parameter.add_(0.2 * noise)


def write_adapter(folder, case, seed):
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    base = ROOT / "tests/golden/models" / case["base"]
    model = get_peft_model(load(base, torch.float32), LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
    draw(model, torch.Generator().manual_seed(seed))
    model.peft_config["default"].base_model_name_or_path = "quire/" + case["base"]
    model.save_pretrained(folder, save_embedding_layers=case.get("save_embedding", "auto"))
    (folder / "README.md").unlink()
    if "dtype" in case:
        path = folder / "adapter_model.safetensors"
        save_file({name: tensor.to(case["dtype"]) for name, tensor in load_file(path).items()}, path)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text()) | case.get("config", {})
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    return base


def rename(folder, case):
    path = folder / "adapter_model.safetensors"
    save_file({case["rename"](name): tensor for name, tensor in load_file(path).items()}, path)


def greedy(model, prompt):
    ids, margin = list(prompt), 1.0
    for _ in range(STEPS):
        last = logits_of(model, ids)[-1]
        best, second = torch.topk(last, 2).values.tolist()
        margin = min(margin, (best - second) / last.abs().max().item())
        ids.append(int(last.argmax()))
    return ids[len(prompt) :], margin


def relative(a, b):
    return ((a.double() - b.double()).abs().max() / a.abs().max()).item()


def find_prompt(models, length, seed):
    model, exact, base = models
    generator = torch.Generator().manual_seed(seed)
    for _ in range(30):
        prompt = torch.randint(3, model.config.vocab_size, (length,), generator=generator).tolist()
        logits = logits_of(model, prompt)
        if relative(logits, logits_of(exact, prompt)) > MAX_ROUNDING:
            continue
        if relative(logits, logits_of(base, prompt)) < MIN_CHANGE:
            continue
        output, margin = greedy(model, prompt)
        if margin >= MIN_MARGIN and len(set(output)) >= MIN_DISTINCT:
            return prompt, logits, output, margin
    return None


def make_case(out, name, case):
    folder = out / name
    first = zlib.crc32(name.encode()) % 10**6
    for seed in range(first, first + 100):
        base = write_adapter(folder, case, seed)
        models = [
            PeftModel.from_pretrained(load(base, torch.float32), folder).eval(),
            PeftModel.from_pretrained(load(base, torch.float64), folder, autocast_adapter_dtype=False).double().eval(),
            load(base, torch.float32),
        ]
        found = [find_prompt(models, length, 1000 * seed + length) for length in (7, 40)]
        if all(found):
            break
    else:
        raise SystemExit(f"{name}: no seed gives outputs with wide enough margins")
    if "rename" in case:
        rename(folder, case)
    facts = dict(
        case=name,
        about=case["about"],
        base=case["base"],
        peft=peft.__version__,
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
    )
    write_golden(folder, facts, found, most_positions=5)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, {size} bytes, margins {[round(f[3], 4) for f in found]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/golden/lora")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in arguments.cases or CASES:
        make_case(arguments.out, name, CASES[name])


if __name__ == "__main__":
    main()
