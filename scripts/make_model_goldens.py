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

from model_golden_cases import CASES

STEPS = 64
MIN_MARGIN = 2e-3  # a hundred times the tests' tolerance on logits
MAX_ROUNDING = 2e-6  # a tenth of it
MIN_DISTINCT = 12  # greedy outputs with fewer different tokens test little


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
