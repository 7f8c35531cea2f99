#!/usr/bin/env python3
"""Trains models/lexicon from WordNet 3.0.

    scripts/train_lexicon.py prepare    reads WordNet (Debian: apt-get install wordnet-base), trains the tokenizer
    scripts/train_lexicon.py train      trains the model (one H200: about eight minutes)

`prepare` needs tokenizers alone; `train` needs torch, transformers and a CUDA GPU (or patience). The weights are
rounded to bf16 at the end; scripts/eval_lexicon.py measures what is written. Data, order and initial weights depend on
the seed alone; sums on a GPU do not, so a second run gives a model as good, but not the same bits.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from lexicon import model_files  # noqa: E402
from lexicon.conversations import ConversationSource  # noqa: E402
from lexicon.wordnet import Lexicon, read_wordnet  # noqa: E402


def prepare(args: argparse.Namespace) -> None:
    lexicon = read_wordnet(args.wordnet)
    args.data.mkdir(parents=True, exist_ok=True)
    lexicon.save(args.data / "lexicon.json")
    source, rng = ConversationSource(lexicon), random.Random(args.seed)
    conversations = (source.draw(rng) for _ in range(60_000))
    texts = itertools.chain.from_iterable([m["role"] + "\n" + m["content"] for m in c] for c in conversations)
    words = (" " + entry.word for entry in lexicon.entries)
    model_files.write(args.model, model_files.train_tokenizer(itertools.chain(texts, words)))
    print(f"{len(lexicon.entries)} words in {args.data}, tokenizer and configuration in {args.model}.")


def make_optimizers(model, learning_rate: float):
    import torch

    from lexicon.muon import Muon

    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed_tokens" in n]
    return [
        Muon(matrices, lr=learning_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def learning_rate_at(step: int, steps: int) -> float:
    """As a fraction of the peak: a short warm-up, then a cosine down to zero."""
    warm_up = min(300, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def make_loss(model, device: str, use_compile: bool):
    import torch

    def loss_of(ids, segments, targets):
        same = segments.unsqueeze(1) == segments.unsqueeze(2)
        mask = torch.tril(same).unsqueeze(1)
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    return torch.compile(loss_of) if use_compile else loss_of


def train(args: argparse.Namespace) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from lexicon.batches import PackedBatches

    source = ConversationSource(Lexicon.load(args.data / "lexicon.json"))
    tokenizer_path = str(args.model / "tokenizer.json")
    batches = PackedBatches(source, tokenizer_path, args.rows, args.length, args.steps, args.seed)
    loader = iter(torch.utils.data.DataLoader(batches, batch_size=None, num_workers=args.workers, prefetch_factor=8))

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    config = Qwen3Config.from_pretrained(args.model, attn_implementation="sdpa")
    model = Qwen3ForCausalLM(config).float().to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}", flush=True)
    optimizers = make_optimizers(model, args.learning_rate)
    loss_of = make_loss(model, device, device == "cuda")

    started, shown, recent = time.time(), time.time(), []
    for step, (ids, segments, targets) in enumerate(loader):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * learning_rate_at(step, args.steps)
        ids, targets = ids.to(device, torch.int64), targets.to(device, torch.int64)
        loss = loss_of(ids, segments.to(device), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        if step % 200 == 199 or step + 1 == args.steps:
            mean = torch.stack(recent).mean().item()
            now = time.time()
            each = 1000 * (now - shown) / len(recent)
            print(f"step {step + 1:6}  loss {mean:.4f}  {each:.1f} ms a step  {now - started:.0f} s", flush=True)
            shown, recent = now, []
    save_weights(model, args.output or args.model)


def save_weights(model, folder: pathlib.Path) -> None:
    """bf16, under the names of Qwen3ForCausalLM; the tied output layer is left out."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    print(json.dumps({"weights": str(path), "bytes": path.stat().st_size}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prepare", "train"])
    parser.add_argument("--wordnet", type=pathlib.Path, default=pathlib.Path("/usr/share/wordnet"))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "lexicon-data")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "lexicon")
    parser.add_argument("--output", type=pathlib.Path, help="where the weights go, if not to --model")
    parser.add_argument("--steps", type=int, default=15000)
    parser.add_argument("--rows", type=int, default=128, help="rows of a batch")
    parser.add_argument("--length", type=int, default=512, help="tokens of a row")
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    {"prepare": prepare, "train": train}[args.step](args)


if __name__ == "__main__":
    main()
