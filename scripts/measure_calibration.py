#!/usr/bin/env python3
"""Compares ways to round models/lexicon to 4 bits: to nearest, by GPTQ's way (quire quantize --calibrate), and by AWQ's.

    scripts/measure_calibration.py build/release/src/quire    # needs torch, transformers and WordNet 3.0

AWQ's way is to scale the inputs of a matrix by powers of their mean magnitude, so that those that count most are rounded
least, and what makes these inputs by the reciprocals (Lin et al., 2023, https://arxiv.org/abs/2306.00978). The scaled
model computes what it did before. This script writes it, and quire rounds it: to nearest, which is AWQ, and by GPTQ's
way. Inputs of q, k and v, of gate and up, and of down are scaled; those of o are not, as its outputs come from heads of
values that several heads of queries share. The power is the one with the least error of the outputs, of 20.

The figure is the perplexity of 500 right answers to questions in wordings that training never used, of the answers' tokens
alone. The calibration text is 4,000 conversations in wordings of the training; quire takes the first 65,536 tokens of it,
and the scales of AWQ's way the first 16,384.
"""

import argparse
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from lexicon import answers, held_out  # noqa: E402
from lexicon.conversations import ConversationSource  # noqa: E402
from lexicon.model_files import render  # noqa: E402
from lexicon.wordnet import read_wordnet  # noqa: E402

LEXICON = ROOT / "models" / "lexicon"
POWERS = 20
TOKENS = 16384
WINDOW = 512
# The matrices that share their inputs, and what makes these inputs: a norm, or the outputs of a matrix.
SHARED = ((("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "input_layernorm"),
          (("mlp.gate_proj", "mlp.up_proj"), "post_attention_layernorm"),
          (("mlp.down_proj",), "mlp.up_proj"))


def calibration_texts(lexicon):
    source = ConversationSource(lexicon)
    rng = random.Random("calibration")
    return [render(source.draw(rng)) for _ in range(4000)]


def write_questions(lexicon, tokenizer, path):
    """A prompt a line: a question and its right answer. Returns the places of the answers' first tokens."""
    rng = random.Random("answers")
    starts, lines = [], []
    for entry in rng.sample(lexicon.entries[:2000], 500):
        question = rng.choice(held_out.DEFINE).replace("{w}", entry.word)
        asked = render([{"role": "user", "content": question}]) + "<|im_start|>assistant\n"
        before = tokenizer(asked).input_ids
        starts.append(len(before))
        ids = before + tokenizer(answers.define(entry) + "<|im_end|>").input_ids
        lines.append(json.dumps({"prompt_token_ids": ids, "prompt_logprobs": 1, "max_tokens": 1}) + "\n")
    path.write_text("".join(lines))
    return starts


def rounded(weight, group, symmetric):
    """As quire rounds to nearest, about: the range of four that has the least squared error for a group."""
    parts = weight.unflatten(1, (-1, group))
    low, high = parts.amin(2, keepdim=True).clamp(max=0), parts.amax(2, keepdim=True).clamp(min=0)
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    best, least = None, None
    for share in (1.0, 0.95, 0.9, 0.85):
        scale = ((high - low) * share / 15).clamp(min=1e-10).bfloat16().float()
        zero = torch.zeros_like(low) if symmetric else torch.round(-low * share / scale) - 8
        values = scale * (torch.clamp(torch.round(parts / scale) + zero, -8, 7) - zero)
        error = (values - parts).square().sum(2, keepdim=True)
        if best is None:
            best, least = values, error
        else:
            best, least = torch.where(error < least, values, best), torch.minimum(error, least)
    return best.flatten(1)


def input_statistics(model, windows):
    """For each matrix whose inputs are scaled the Gram matrix and the mean magnitudes of its inputs."""
    grams, means, hooks = {}, {}, []
    for index, layer in enumerate(model.model.layers):
        for modules, _ in SHARED:
            def note(module, inputs, key=(index, modules[0])):
                x = inputs[0].flatten(0, 1)
                grams[key] = grams.get(key, 0) + x.T @ x
                means[key] = means.get(key, 0) + x.abs().sum(0)
            hooks.append(layer.get_submodule(modules[0]).register_forward_pre_hook(note))
    with torch.no_grad():
        for window in windows:
            model.model(window[None])
    for hook in hooks:
        hook.remove()
    return grams, means


def best_scales(weights, gram, mean, group, symmetric):
    best, least = None, None
    for step in range(POWERS):
        scales = (mean / mean.mean()).clamp(min=1e-4) ** (step / POWERS)
        scales = scales / (scales.max() * scales.min()).sqrt()
        errors = [rounded(weight * scales, group, symmetric) / scales - weight for weight in weights]
        error = sum(float((each @ gram * each).sum()) for each in errors)
        if least is None or error < least:
            best, least = scales, error
    return best


def write_scaled(out, group, symmetric, grams, means):
    shutil.copytree(LEXICON, out)
    tensors = {name: tensor.float() for name, tensor in load_file(LEXICON / "model.safetensors").items()}
    for (index, first), gram in grams.items():
        modules, maker = next(shared for shared in SHARED if shared[0][0] == first)
        names = [f"model.layers.{index}.{module}.weight" for module in modules]
        scales = best_scales([tensors[name] for name in names], gram, means[index, first], group, symmetric)
        for name in names:
            tensors[name] = tensors[name] * scales
        made_by = f"model.layers.{index}.{maker}.weight"
        made = tensors[made_by]
        tensors[made_by] = made / scales if made.dim() == 1 else made / scales[:, None]
    save_file({name: tensor.bfloat16().contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")


def perplexity(quire, model, questions, starts):
    command = [quire, "generate", model, "--device", "cpu", "--json", "--prompt-file", questions]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    places = [place for line, start in zip(lines, starts) for place in json.loads(line)["prompt_logprobs"][start:]]
    return math.exp(-sum(place[0]["logprob"] for place in places) / len(places))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire", type=pathlib.Path, help="the binary")
    parser.add_argument("--wordnet", type=pathlib.Path, default=pathlib.Path("/usr/share/wordnet"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        lexicon = read_wordnet(arguments.wordnet)
        texts = calibration_texts(lexicon)
        calibration = folder / "calibration.jsonl"
        calibration.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(LEXICON / "tokenizer.json"))
        questions = folder / "questions.jsonl"
        starts = write_questions(lexicon, tokenizer, questions)
        ids = tokenizer("".join(texts[:2500]), return_tensors="pt").input_ids[0][:TOKENS]
        model = transformers.AutoModelForCausalLM.from_pretrained(LEXICON, dtype=torch.float32).eval()
        grams, means = input_statistics(model, ids.split(WINDOW))
        print(f"bfloat16: {perplexity(arguments.quire, LEXICON, questions, starts):.4f}", flush=True)
        print("| int4 | to nearest | GPTQ | AWQ | AWQ, then GPTQ |\n|---|--:|--:|--:|--:|", flush=True)
        for group in (32, 64):
            for symmetric in (False, True):
                scaled = folder / f"scaled-{group}-{symmetric}"
                write_scaled(scaled, group, symmetric, grams, means)
                figures = []
                for source in (LEXICON, scaled):
                    for calibrate in ([], ["--calibrate", calibration]):
                        out = folder / "out"
                        shutil.rmtree(out, ignore_errors=True)
                        flags = ["--symmetric"] if symmetric else []
                        subprocess.run([arguments.quire, "quantize", source, out, "--scheme", "int4", "--group-size",
                                        str(group), *flags, *calibrate], check=True, capture_output=True)
                        figures.append(f"{perplexity(arguments.quire, out, questions, starts):.4f}")
                print(f"| groups of {group}{', symmetric' if symmetric else ''} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
