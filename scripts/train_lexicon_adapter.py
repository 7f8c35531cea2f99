#!/usr/bin/env python3
"""Trains models/lexicon-pirate, a LoRA adapter of models/lexicon, with PEFT: the same answers, in a pirate's words.

    scripts/train_lexicon.py prepare --model /tmp/unused    # the dictionary, from WordNet
    scripts/train_lexicon_adapter.py                        # one CPU core: ten to twenty minutes
    scripts/train_lexicon_adapter.py --measure              # how often its answers are right, and a pirate's

Needs torch, transformers and peft. The lexicon's conversations are the training data; only what the adapter adds is
trained, and saved as bf16.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402
from lexicon import held_out, pirate  # noqa: E402
from lexicon.batches import PackedBatches  # noqa: E402
from lexicon.conversations import ConversationSource, Message, answer  # noqa: E402
from lexicon.wordnet import Lexicon  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


class PirateSource(ConversationSource):
    """The lexicon's conversations, answered by the pirate."""

    def draw(self, rng: random.Random) -> list[Message]:
        return [
            {**message, "content": pirate.speak(message["content"])} if message["role"] == "assistant" else message
            for message in super().draw(rng)
        ]


def base_model(folder: pathlib.Path, device: str):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().to(device)


def loss_of(model, ids, segments, targets):
    same = segments.unsqueeze(1) == segments.unsqueeze(2)
    mask = torch.tril(same).unsqueeze(1)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate_at(step: int, steps: int) -> float:
    """As a fraction of the peak: a short warm-up, then a cosine down to zero."""
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    config = LoraConfig(
        r=args.rank,
        lora_alpha=2 * args.rank,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base_model(args.model, args.device), config)
    model.print_trainable_parameters()
    source = PirateSource(Lexicon.load(args.data / "lexicon.json"))
    batches = PackedBatches(source, str(args.model / "tokenizer.json"), args.rows, 512, args.steps, args.seed)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=args.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    started = time.time()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * learning_rate_at(step, args.steps)
        ids, segments, targets = (tensor.to(args.device) for tensor in batches[step])
        loss = loss_of(model, ids.long(), segments, targets.long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19 or step + 1 == args.steps:
            print(f"step {step + 1:5}  loss {loss.item():.4f}  {time.time() - started:.0f} s", flush=True)
    save(model, args.output)


def save(model, folder: pathlib.Path) -> None:
    """bf16 weights, and the config, which names the base as users do, not as a path of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        saved = pathlib.Path(name)
        model.save_pretrained(saved)  # with a README that says nothing
        weights = load_file(saved / "adapter_model.safetensors")
        config = json.loads((saved / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config["base_model_name_or_path"] = "lexicon"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()):,} bytes")


def measure(args: argparse.Namespace) -> None:
    """Greedy answers to held-out wordings about frequent words."""
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = PeftModel.from_pretrained(base_model(args.model, args.device), args.output).eval()
    rng = random.Random(0)
    entries = Lexicon.load(args.data / "lexicon.json").entries[:2000]
    entries = rng.sample(entries, min(args.sample, len(entries)))
    right = styled = exact = 0
    for at in range(0, len(entries), 100):
        part = entries[at : at + 100]
        questions = [rng.choice(held_out.DEFINE).replace("{w}", entry.word) for entry in part]
        prompts = [
            tokenizer.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
            for q in questions
        ]
        batch = tokenizer(prompts, return_tensors="pt", padding=True).to(args.device)
        with torch.inference_mode():
            out = model.generate(**batch, do_sample=False, max_new_tokens=128)
        texts = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        for entry, text in zip(part, texts):
            right += any(gloss in text for gloss in entry.first_glosses)
            styled += text.endswith(", matey!") or text.endswith(", matey.")
            exact += text == pirate.speak(answer(entry, "define", "noun"))
        print(f"  {texts[0]}", flush=True)
    print(f"of {len(entries)}: {right} right, {styled} in a pirate's words, {exact} to the letter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "lexicon-data")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "lexicon")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "models" / "lexicon-pirate")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--measure", action="store_true", help="measure the adapter of --output; train none")
    parser.add_argument("--sample", type=int, default=2000, help="words that --measure asks about")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rows", type=int, default=8, help="rows of 512 tokens in a batch")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    measure(args) if args.measure else train(args)


if __name__ == "__main__":
    main()
