#!/usr/bin/env python3
"""Makes tests/golden/models/: tiny random checkpoints and what Hugging Face's transformers computes from them.

    python3 scripts/make_model_goldens.py [--out tests/golden/models] [CASE ...]

Needs torch, transformers 5.17 and safetensors; runs on a CPU in a minute or two. Weights and prompts come from
fixed seeds, so the same versions repeat themselves but for rounding. Each case is a folder as Hugging Face publishes
a model (config.json, generation_config.json and model.safetensors, or shards with an index) with two more files:

golden.json
    case            the folder's name
    about           what the case is there for
    transformers, torch    the versions that computed it
    max_model_len   what to set the engine's max_model_len to
    prompts         a list, each with
        prompt_token_ids
        logits             the name of a tensor in golden.safetensors: float32 [len(logit_positions), vocab_size]
        logit_positions    the positions in the prompt whose next-token logits those rows are
        output_token_ids   what greedy decoding appends, end-of-sequence tokens ignored; [] where only logits count
        min_margin         the smallest gap, over those steps, between the two largest logits, divided by the largest
                           magnitude of the step's logits: far above rounding, so that equal tokens can be asked for
golden.safetensors
    the logits

Everything is computed in float32 with attn_implementation="eager" from the folder as written, so 16-bit weights are
the ones rounded to 16 bits. Weights are drawn much larger than a trained model's, so that a slip anywhere changes the
logits visibly; each prompt's logits are checked against float64 to be well within the tests' tolerance.
"""
import argparse
import contextlib
import json
import re
import shutil
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3

STEPS = 64
MIN_MARGIN = 2e-3  # a hundred times the tests' tolerance on logits
MAX_ROUNDING = 2e-6  # a tenth of it
MIN_DISTINCT = 12  # greedy outputs with fewer different tokens test little

QWEN3 = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
)
QWEN2 = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=256,
)
LLAMA = dict(
    vocab_size=131,
    hidden_size=32,
    intermediate_size=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
MISTRAL = dict(
    vocab_size=130,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    max_position_embeddings=512,
)
PHI3 = dict(
    vocab_size=132,
    hidden_size=64,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    pad_token_id=0,
)
# Factors of LongRoPE for the 6 frequencies of three quarters of a head of 16 elements.
LONGROPE = dict(
    partial_rotary_factor=0.75,
    short_factor=[1.0, 1.05, 1.1, 1.2, 1.35, 1.5],
    long_factor=[1.0, 1.2, 1.9, 3.5, 7.0, 12.5],
)


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


# name -> about, family, config fields, and how to write it:
#   old         the older spelling of config.json: rope_theta, rope_scaling, torch_dtype
#   type_key    the key that names the RoPE type in rope_scaling: "rope_type", or the oldest "type"
#   drop        fields that older configs do not have
#   dtype       of the stored weights
#   shard       max_shard_size for save_pretrained
#   lengths     of the prompts
#   max_model_len, steps
CASES = {
    "qwen3-tied": dict(
        about="QK norm, head_dim unlike hidden_size / heads, tied embeddings",
        family="Qwen3",
        config=QWEN3 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
    ),
    "qwen3-bias-sharded": dict(
        about="attention_bias, an lm_head of its own, three layers, one KV head, shards with an index",
        family="Qwen3",
        config=QWEN3
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            num_key_value_heads=1,
            attention_bias=True,
            rope_parameters=rope(theta=1e6),
        ),
        shard="48KB",
    ),
    "qwen3-bf16": dict(
        about="bfloat16 weights and the older spelling, as Qwen3 is published",
        family="Qwen3",
        config=QWEN3 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
        dtype="bfloat16",
        old=True,
        drop=["layer_types"],
    ),
    "qwen3-yarn": dict(
        about="YaRN with prompts beyond the original length, the older spelling",
        family="Qwen3",
        config=QWEN3
        | dict(
            tie_word_embeddings=True,
            max_position_embeddings=64,
            rope_parameters=rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=64),
        ),
        old=True,
        drop=["layer_types"],
    ),
    "qwen3-sliding": dict(
        about="use_sliding_window from layer max_window_layers on",
        family="Qwen3",
        config=QWEN3
        | dict(use_sliding_window=True, sliding_window=24, max_window_layers=1, rope_parameters=rope(theta=1e6)),
    ),
    "qwen2-tied": dict(
        about="QKV bias, tied embeddings, the older spelling; sliding_window is there but not used",
        family="Qwen2",
        config=QWEN2 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
        old=True,
        drop=["layer_types"],
        extra=dict(sliding_window=32, max_window_layers=2),
    ),
    "qwen2-sliding": dict(
        about="use_sliding_window with max_window_layers and no layer_types, the older spelling",
        family="Qwen2",
        config=QWEN2
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            use_sliding_window=True,
            sliding_window=16,
            max_window_layers=1,
            rope_parameters=rope(),
        ),
        old=True,
        drop=["layer_types"],
    ),
    "qwen2-layer-types": dict(
        about="layer_types decide which layers have the sliding window, against max_window_layers",
        family="Qwen2",
        config=QWEN2
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            use_sliding_window=True,
            sliding_window=20,
            max_window_layers=3,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=rope(),
        ),
    ),
    "qwen2-yarn-bf16": dict(
        about='YaRN spelt "type", as Qwen2.5\'s model cards give it; bfloat16, shards',
        family="Qwen2",
        config=QWEN2
        | dict(
            max_position_embeddings=64,
            rope_parameters=rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=64),
        ),
        dtype="bfloat16",
        old=True,
        type_key="type",
        drop=["layer_types"],
        shard="32KB",
    ),
    "llama-mha": dict(
        about="as many KV heads as heads; no head_dim, num_key_value_heads or rope_theta in the config, as early Llamas",
        family="Llama",
        config=LLAMA | dict(num_key_value_heads=4, intermediate_size=48),
        old=True,
        drop=["head_dim", "num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias"],
    ),
    "llama-bias": dict(
        about="attention_bias (o_proj too) and mlp_bias",
        family="Llama",
        config=LLAMA | dict(attention_bias=True, mlp_bias=True, rope_parameters=rope(theta=5e5)),
    ),
    "llama-head-dim": dict(
        about="head_dim unlike hidden_size / heads, one layer, a larger norm epsilon",
        family="Llama",
        config=LLAMA
        | dict(num_hidden_layers=1, head_dim=24, num_key_value_heads=1, rms_norm_eps=1e-3, rope_parameters=rope()),
    ),
    "llama-linear": dict(
        about='linear RoPE scaling spelt "type"',
        family="Llama",
        config=LLAMA | dict(max_position_embeddings=64, rope_parameters=rope("linear", factor=4.0)),
        old=True,
        type_key="type",
        max_model_len=256,
    ),
    "llama-dynamic": dict(
        about="dynamic NTK scaling at the original length, where it changes nothing",
        family="Llama",
        config=LLAMA | dict(rope_parameters=rope("dynamic", factor=2.0)),
        old=True,
        type_key="type",
    ),
    "llama-dynamic-long": dict(
        about="dynamic NTK scaling with its base computed for max_model_len, four times the original length",
        family="Llama",
        config=LLAMA | dict(max_position_embeddings=32, rope_parameters=rope("dynamic", factor=4.0)),
        lengths=[128],
        max_model_len=128,
        steps=0,
    ),
    "llama-yarn": dict(
        about="YaRN with its own betas",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=16.0, beta_slow=2.0
            )
        ),
    ),
    "llama-yarn-attention-factor": dict(
        about="YaRN with attention_factor and without truncation of the correction range",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", 50000.0, factor=8.0, original_max_position_embeddings=32, attention_factor=0.8, truncate=False
            )
        ),
    ),
    "llama-yarn-mscale": dict(
        about="YaRN with mscale and mscale_all_dim",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", factor=16.0, original_max_position_embeddings=16, mscale=1.5, mscale_all_dim=0.7
            )
        ),
    ),
    "llama3": dict(
        about="Llama 3's RoPE scaling in the newer spelling",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            intermediate_size=48,
            max_position_embeddings=512,
            rope_parameters=rope(
                "llama3",
                50000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
    ),
    "llama3-bf16": dict(
        about="Llama 3's RoPE scaling, tied embeddings, bfloat16 and the older spelling, as Llama 3.2 is published",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            rope_parameters=rope(
                "llama3",
                5e5,
                factor=32.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=128,
            ),
            bos_token_id=1,
            eos_token_id=[2, 8, 9],
        ),
        dtype="bfloat16",
        old=True,
    ),
    "llama-fp16": dict(
        about="float16 weights, shards with an index, the older spelling, as Llama 2 is published",
        family="Llama",
        config=LLAMA | dict(hidden_size=64, num_key_value_heads=4, intermediate_size=40),
        dtype="float16",
        old=True,
        drop=["head_dim"],
        shard="40KB",
    ),
    "llama-partial-rotary": dict(
        about="RoPE on the first half of each head only",
        family="Llama",
        config=LLAMA | dict(head_dim=16, rope_parameters=rope(partial_rotary_factor=0.5)),
        partial=True,
    ),
    "llama-partial-rotary-yarn": dict(
        about="RoPE on three quarters of each head, with YaRN, the older spelling",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            rope_parameters=rope(
                "yarn", factor=4.0, original_max_position_embeddings=64, partial_rotary_factor=0.75
            ),
        ),
        partial=True,
        old=True,
    ),
    "mistral-sliding": dict(
        about="a sliding window smaller than the prompts, on every layer",
        family="Mistral",
        config=MISTRAL | dict(sliding_window=20, rope_parameters=rope()),
        old=True,
        drop=["head_dim"],
    ),
    "mistral-bf16": dict(
        about="sliding_window null, head_dim unlike hidden_size / heads, bfloat16, shards",
        family="Mistral",
        config=MISTRAL
        | dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=None,
            rope_parameters=rope(theta=1e6),
        ),
        dtype="bfloat16",
        shard="32KB",
    ),
    "phi3-sliding": dict(
        about="qkv_proj and gate_up_proj fused in the checkpoint, a sliding window on every layer",
        family="Phi3",
        config=PHI3 | dict(sliding_window=20, rope_parameters=rope()),
        old=True,
    ),
    "phi3-longrope-short": dict(
        about="LongRoPE up to the original length, on three quarters of each head, tied embeddings, the older "
        "spelling and bfloat16, as Phi-4-mini is published",
        family="Phi3",
        config=PHI3
        | dict(
            tie_word_embeddings=True,
            original_max_position_embeddings=256,
            rope_parameters=rope("longrope", **LONGROPE),
        ),
        dtype="bfloat16",
        old=True,
        type_key="type",
    ),
    "phi3-longrope-long": dict(
        about="LongRoPE's factors for sequences beyond the original length, which max_model_len is",
        family="Phi3",
        config=PHI3
        | dict(
            original_max_position_embeddings=64,
            rope_parameters=rope("longrope", **LONGROPE),
        ),
        shard="32KB",
        lengths=[100, 150],
    ),
}


@contextlib.contextmanager
def partial_rotary(enabled):
    """Llama's classes rotate whole heads only; Phi-3's functions are the same arithmetic for a part of each head."""
    if not enabled:
        yield
        return
    embedding = modeling_llama.LlamaRotaryEmbedding
    apply, compute = modeling_llama.apply_rotary_pos_emb, embedding.compute_default_rope_parameters
    modeling_llama.apply_rotary_pos_emb = modeling_phi3.apply_rotary_pos_emb
    embedding.compute_default_rope_parameters = staticmethod(
        modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters
    )
    try:
        yield
    finally:
        modeling_llama.apply_rotary_pos_emb = apply
        embedding.compute_default_rope_parameters = staticmethod(compute)


def random_weights(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1.0 + 0.3 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif "embed" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * 1.8 / parameter.shape[1] ** 0.5)


def respell(path, case):
    """Rewrites config.json into the spelling of transformers 4."""
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
    kind = parameters.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {case.get("type_key", "rope_type"): kind, **parameters}
    if "original_max_position_embeddings" in config and config["rope_scaling"]:
        config["rope_scaling"].pop("original_max_position_embeddings")  # Phi-3's stands at the top
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.51.0"
    for field in case.get("drop", []):
        config.pop(field, None)
    config.update(case.get("extra", {}))
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_checkpoint(folder, case, seed):
    config_class = getattr(transformers, case["family"] + "Config")
    model_class = getattr(transformers, case["family"] + "ForCausalLM")
    settings = dict(bos_token_id=1, eos_token_id=2) | json.loads(json.dumps(case["config"]))
    model = model_class(config_class(**settings))
    random_weights(model, seed)
    model.to(getattr(torch, case.get("dtype", "float32")))
    model.config.dtype = case.get("dtype", "float32")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=case.get("shard", "1MB"))
    if case.get("old"):
        respell(folder / "config.json", case)


def load(folder, case, dtype):
    model_class = getattr(transformers, case["family"] + "ForCausalLM")
    model = model_class.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def positions_of(length):
    """Every position of a short prompt; of a long one a few along the way and the last ones."""
    if length <= 8:
        return list(range(length))
    return sorted({0, length // 4, length // 2, 3 * length // 4, *range(length - 3, length)})


def greedy(model, prompt, steps):
    """The tokens and the smallest relative margin, or None as soon as a step has too small a margin."""
    ids, margin = list(prompt), 1.0
    for _ in range(steps):
        last = logits_of(model, ids)[-1]
        best, second = torch.topk(last, 2).values.tolist()
        margin = min(margin, (best - second) / last.abs().max().item())
        if margin < MIN_MARGIN:
            return None
        ids.append(int(last.argmax()))
    return ids[len(prompt) :], margin


def find_prompt(model, exact, vocab_size, length, steps, seed):
    """The first random prompt whose outputs are worth asking for exactly; None if there is none."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(40):
        prompt = torch.randint(3, vocab_size, (length,), generator=generator).tolist()
        logits = logits_of(model, prompt)
        rounding = (logits.double() - logits_of(exact, prompt)).abs().max() / logits.abs().max()
        if rounding > MAX_ROUNDING:
            continue
        found = greedy(model, prompt, steps)
        if found and (steps == 0 or len(set(found[0])) >= MIN_DISTINCT):
            return prompt, logits, *found
    return None


def make_case(out, name, case):
    folder = out / name
    steps = case.get("steps", STEPS)
    first = zlib.crc32(name.encode()) % 10**6
    for seed in range(first, first + 200):
        write_checkpoint(folder, case, seed)
        model, exact = load(folder, case, torch.float32), load(folder, case, torch.float64)
        found = [
            find_prompt(model, exact, case["config"]["vocab_size"], length, steps, 1000 * seed + length)
            for length in case.get("lengths", [1, 7, 100, 150])
        ]
        if all(found):
            break
    else:
        raise SystemExit(f"{name}: no seed gives outputs with wide enough margins")

    facts = dict(
        case=name,
        about=case["about"],
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        max_model_len=case.get("max_model_len", 256),
    )
    write_golden(folder, facts, found)
    distinct = [len(set(output)) for _, _, output, _ in found]
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, {size} bytes, distinct tokens {distinct}", flush=True)


def write_golden(folder, facts, found, most_positions=None):
    """Writes golden.json (`facts`, then the prompts) and golden.safetensors, and makes the folder's files readable.

    found: for each prompt its token ids, the logits at all its positions, the greedy output, the smallest margin.
    most_positions: keeps the logits of that many of the last positions_of the prompt; None: of all of them.
    """
    tensors, prompts = {}, []
    for i, (prompt, logits, output, margin) in enumerate(found):
        positions = positions_of(len(prompt))
        if most_positions is not None:
            positions = positions[-most_positions:]
        tensors[f"logits.{i}"] = logits[positions].contiguous()
        prompts.append(
            dict(
                prompt_token_ids=prompt,
                logits=f"logits.{i}",
                logit_positions=positions,
                output_token_ids=output,
                min_margin=round(margin, 6),
            )
        )
    save_file(tensors, folder / "golden.safetensors")
    text = json.dumps(facts | dict(prompts=prompts), indent=1)
    (folder / "golden.json").write_text(compact_lists(text) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


def compact_lists(text):
    """Puts each list of numbers on one line."""
    return re.sub(r"\[[\s\d,]*\]", lambda m: re.sub(r"\s+", " ", m.group()).replace("[ ", "[").replace(" ]", "]"), text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/golden/models")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in arguments.cases or CASES:
        with partial_rotary(CASES[name].get("partial")):
            make_case(arguments.out, name, CASES[name])


if __name__ == "__main__":
    main()
