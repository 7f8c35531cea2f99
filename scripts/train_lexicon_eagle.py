#!/usr/bin/env python3
"""Trains models/lexicon-eagle3, an EAGLE-3 head that drafts for models/lexicon, on the model's own answers.

    scripts/train_lexicon.py prepare --model /tmp/unused    # the dictionary, from WordNet
    scripts/train_lexicon_eagle.py prompts                  # conversations that wait for an answer, and held-out ones
    scripts/train_lexicon_eagle.py answers                  # the model's; one H200: a minute
    scripts/train_lexicon_eagle.py train                    # one H200: two minutes

The model answers the prompts greedily. The head is trained as EAGLE-3's are (Li et al., 2025): unrolled for several
steps, each on what it made of the step before ("training-time test"), to say the tokens that the model will say. Needs
torch, transformers and safetensors; `prompts` needs tokenizers alone. Prints how many tokens a step would bring with
four drafts, on wordings that no training question has.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

LONGEST_PROMPT = 128
LONGEST_ANSWER = 64
DRAFTS = 4


def make_prompts(args: argparse.Namespace) -> None:
    from lexicon import answers, held_out
    from lexicon.conversations import ConversationSource
    from lexicon.model_files import render
    from lexicon.wordnet import Lexicon
    from tokenizers import Tokenizer

    lexicon = Lexicon.load(args.data / "lexicon.json")
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    source, rng = ConversationSource(lexicon), random.Random(args.seed)
    asked = "<|im_start|>assistant\n"
    arrays = {}
    questions = []
    for entry in rng.sample(lexicon.entries[:10000], 2000):
        wordings = rng.choice([held_out.DEFINE] * 3 + [held_out.POS, held_out.EXAMPLE, held_out.SYNONYM])
        name = answers.ARTICLES[rng.choice(entry.parts).name]
        question = rng.choice(wordings).replace("{w}", entry.word).replace("{name}", name)
        questions.append([{"role": "user", "content": question}])
    for name, conversations, count in [
        ("held_out", iter(questions), len(questions)),
        ("train", (source.draw(rng)[:-1] for _ in iter(int, 1)), args.prompts),
    ]:
        kept = []
        while len(kept) < count:
            texts = [render(c) + asked for c, _ in zip(conversations, range(1000))]
            kept += [e.ids for e in tokenizer.encode_batch(texts) if len(e.ids) <= LONGEST_PROMPT]
            if len(texts) < 1000:
                break
        kept = kept[:count]
        add_to(arrays, name, kept)
        print(f"{name}: {len(kept):,} prompts, {len(arrays[name]):,} tokens", flush=True)
    np.savez_compressed(args.data / "eagle-prompts.npz", **arrays)


def load(path: pathlib.Path, name: str) -> list[np.ndarray]:
    arrays = np.load(path)
    return np.split(arrays[name].astype(np.int64), np.cumsum(arrays[name + "_lengths"].astype(np.int64))[:-1])


def add_to(arrays: dict, name: str, rows: list) -> None:
    arrays[name] = np.concatenate([np.asarray(row, dtype=np.uint16) for row in rows])
    arrays[name + "_lengths"] = np.array([len(row) for row in rows], dtype=np.uint16)


def load_model(args: argparse.Namespace):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_float32_matmul_precision("high")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.float().to(args.device).eval(), json.loads((args.model / "config.json").read_text(encoding="utf-8"))


def answer(model, prompts: list[np.ndarray], pad: int, end: int) -> list[np.ndarray]:
    """What the model says, greedily, the end included."""
    import torch
    from transformers import DynamicCache

    device = next(model.parameters()).device
    size = max(len(p) for p in prompts)
    ids = np.full((len(prompts), size), pad, dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, size - len(prompt) :] = prompt
    step = torch.from_numpy(ids).to(device)
    first = torch.tensor([size - len(p) for p in prompts], device=device)
    columns = torch.arange(size + LONGEST_ANSWER, device=device)
    seen = (columns >= first[:, None]).long()
    cache, said = DynamicCache(), []
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for width in range(size, size + LONGEST_ANSWER):
        positions = (columns[width - step.size(1) : width] - first[:, None]).clamp(min=0)
        out = model(
            input_ids=step,
            attention_mask=seen[:, :width],
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        )
        step = out.logits[:, -1].argmax(-1, keepdim=True)
        said.append(step)
        done |= step.squeeze(1) == end
        if done.all():
            break
    rows = torch.cat(said, 1).cpu().numpy()
    ends = [np.flatnonzero(row == end) for row in rows]
    return [row[: at[0] + 1] if len(at) else row for row, at in zip(rows, ends)]


def make_answers(args: argparse.Namespace) -> None:
    import torch

    started = time.time()
    model, config = load_model(args)
    arrays = {}
    for name in ("held_out", "train"):
        prompts = sorted(load(args.data / "eagle-prompts.npz", name)[: args.most_prompts], key=len)
        answers = []
        with torch.no_grad():
            for at in range(0, len(prompts), args.answer_batch):
                part = prompts[at : at + args.answer_batch]
                answers += answer(model, part, config["pad_token_id"], config["eos_token_id"])
        add_to(arrays, name + "_prompts", prompts)
        add_to(arrays, name + "_answers", answers)
        print(f"{name}: {sum(map(len, answers)):,} tokens of answers, {time.time() - started:.0f} s", flush=True)
    np.savez_compressed(args.data / "eagle-answers.npz", **arrays)


class Batch:
    """Prompts with the model's answers. Prompts end, and answers begin, in the same column."""

    def __init__(self, model, prompts, answers, layers, config):
        import torch

        pad, device = config["pad_token_id"], next(model.parameters()).device
        self.prompt_size = max(map(len, prompts))  # P
        longest = max(map(len, answers))  # A
        ids = np.full((len(prompts), self.prompt_size + longest + DRAFTS + 2), pad, dtype=np.int64)
        for row, (prompt, said) in enumerate(zip(prompts, answers)):
            ids[row, self.prompt_size - len(prompt) : self.prompt_size] = prompt
            ids[row, self.prompt_size : self.prompt_size + len(said)] = said
        self.ids = torch.from_numpy(ids).to(device)  # [B, P + A + DRAFTS + 2]
        self.first = torch.tensor([self.prompt_size - len(p) for p in prompts], device=device)
        columns = torch.arange(self.prompt_size + longest, device=device)
        with torch.no_grad():
            out = model.model(
                input_ids=self.ids[:, : len(columns)],
                attention_mask=(columns >= self.first[:, None]).long(),
                position_ids=(columns - self.first[:, None]).clamp(min=0),
                use_cache=False,
                output_hidden_states=True,
            )
        # [B, P + A, 3 H]: the inputs of the layers that the head sees
        self.states = torch.cat([out.hidden_states[layer] for layer in layers], dim=-1).bfloat16()


def make_batches(model, args, name: str, layers, config) -> list[Batch]:
    """Of prompts of about the same length each."""
    prompts, answers = (load(args.data / "eagle-answers.npz", f"{name}_{part}") for part in ("prompts", "answers"))
    pairs = sorted(zip(prompts, answers), key=lambda pair: (len(pair[0]) // 8, len(pair[1])))[: args.most_prompts]
    parts = (pairs[at : at + args.rows] for at in range(0, len(pairs), args.rows))
    return [Batch(model, *zip(*part), layers, config) for part in parts]


def make_head(config: dict, args: argparse.Namespace):
    import torch
    from torch import nn

    hidden, dim = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            return nn.functional.rms_norm(x.float(), (hidden,), self.weight, config["rms_norm_eps"])

    def linear(inputs, outputs):
        layer = nn.Linear(inputs, outputs, bias=False)
        nn.init.normal_(layer.weight, std=0.5 / math.sqrt(inputs))
        return layer

    def rotate(x, positions):
        angles = positions[:, None].float() * config["rope_theta"] ** (
            -torch.arange(0, dim, 2, device=x.device).float() / dim
        )
        cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]  # [T, 1, dim]
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin

    class Head(nn.Module):
        """One decoder layer whose attention reads a token's embedding beside what is known of the token before."""

        def __init__(self):
            super().__init__()
            self.fc = linear(3 * hidden, hidden)
            self.input_layernorm, self.hidden_norm, self.post_attention_layernorm, self.norm = (
                Norm() for _ in range(4)
            )
            self.q_proj = linear(2 * hidden, heads * dim)
            self.k_proj = linear(2 * hidden, kv_heads * dim)
            self.v_proj = linear(2 * hidden, kv_heads * dim)
            self.o_proj = linear(heads * dim, hidden)
            self.gate_proj = linear(hidden, args.intermediate_size)
            self.up_proj = linear(hidden, args.intermediate_size)
            self.down_proj = linear(args.intermediate_size, hidden)
            self.lm_head = linear(hidden, args.draft_vocab_size)

        def keys_values(self, both, positions):
            k = rotate(self.k_proj(both).unflatten(-1, (kv_heads, dim)), positions)
            return k, self.v_proj(both).unflatten(-1, (kv_heads, dim))

        def unroll(self, batch: Batch, embed, steps: int):
            """Logits of each step [B, A, draft_vocab_size] of the rows that answers are drafted from."""
            total = batch.states.size(1)
            device = batch.ids.device
            columns = torch.arange(total, device=device)
            rows = columns[batch.prompt_size - 1 : total - 1]  # row a has token a + 1 and the states of a
            token = self.input_layernorm(embed(batch.ids[:, 1 : total + 1]))
            known = self.hidden_norm(self.fc(batch.states))
            both = torch.cat([token, known], -1)
            keys, values = self.keys_values(both, columns)
            keys, values = (x.repeat_interleave(heads // kv_heads, 2).transpose(1, 2) for x in (keys, values))
            seen = (columns <= rows[:, None]) & (columns >= batch.first[:, None, None])  # [B, A, T]
            mask = torch.where(seen, 0.0, float("-inf")).unsqueeze(1)
            both, residual = both[:, rows], known[:, rows]
            later_keys, later_values, logits = [], [], []
            for step in range(steps):
                if step > 0:
                    residual = self.hidden_norm(residual)
                    token = self.input_layernorm(embed(batch.ids[:, rows + 1 + step]))
                    both = torch.cat([token, residual], -1)
                    k, v = self.keys_values(both, rows + step)
                    later_keys.append(k.repeat_interleave(heads // kv_heads, 2).transpose(1, 2))
                    later_values.append(v.repeat_interleave(heads // kv_heads, 2).transpose(1, 2))
                q = rotate(self.q_proj(both).unflatten(-1, (heads, dim)), rows + step).transpose(1, 2)
                scores = [(q @ keys.mT).float() * dim**-0.5 + mask]
                scores += [(q * k).float().sum(-1, keepdim=True) * dim**-0.5 for k in later_keys]
                shares = torch.cat(scores, -1).softmax(-1).to(values.dtype)
                attended = shares[..., :total] @ values
                for i, v in enumerate(later_values):
                    attended = attended + shares[..., total + i, None] * v
                residual = residual + self.o_proj(attended.transpose(1, 2).flatten(2)).float()
                inner = self.post_attention_layernorm(residual)
                inner = nn.functional.silu(self.gate_proj(inner)) * self.up_proj(inner)
                residual = residual + self.down_proj(inner).float()
                logits.append(self.lm_head(self.norm(residual)))
            return logits

    return Head()


def labels_of(batch: Batch, step: int, vocab, end: int):
    """The draft ids that step `step` should say in each row; -100 where there is none."""
    import torch

    first = batch.prompt_size - 1
    rows = batch.states.size(1) - 1 - first
    answers = batch.ids[:, batch.prompt_size :]
    ended = (answers == end).long().cumsum(1) - (answers == end).long()  # before this token
    at = slice(step + 1, step + 1 + rows)
    tokens = answers[:, at]
    valid = (ended[:, at] == 0) & (torch.arange(answers.size(1), device=tokens.device)[at] < rows)
    return vocab[tokens].masked_fill(~valid, -100), valid


def measure(head, embed, batches, vocab, end: int):
    """Tokens a step with DRAFTS drafts of each, over whole answers; and the share of right drafts by place."""
    import torch

    tokens = steps = 0
    right = np.zeros(DRAFTS)
    asked = np.zeros(DRAFTS)
    with torch.inference_mode(), torch.autocast(batches[0].ids.device.type, dtype=torch.bfloat16):
        for batch in batches:
            kept = []
            for step, logits in enumerate(head.unroll(batch, embed, DRAFTS)):
                labels, valid = labels_of(batch, step, vocab, end)
                hit = (logits.argmax(-1) == labels) & (labels >= 0)
                kept.append(hit if step == 0 else kept[-1] & hit)
                right[step] += kept[step].sum().item()
                asked[step] += (valid if step == 0 else valid & kept[step - 1]).sum().item()
                if step == 0:
                    lengths = valid.sum(1).tolist()
            num_kept = torch.stack(kept).sum(0).cpu().numpy()
            for row, length in enumerate(lengths):
                at = 0
                while at < length:
                    at += int(num_kept[row, at]) + 1
                    steps += 1
                tokens += length
    return tokens / steps, right / np.maximum(asked, 1)


def learning_rate_at(step: int, steps: int) -> float:
    warm_up = min(100, max(1, steps // 10))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def train(args: argparse.Namespace) -> None:
    import torch
    from lexicon.muon import Muon

    started = time.time()
    torch.manual_seed(args.seed)
    model, config = load_model(args)
    num_layers, end = config["num_hidden_layers"], config["eos_token_id"]
    layers = (2, num_layers // 2, num_layers - 3)
    held_out = make_batches(model, args, "held_out", layers, config)
    batches = make_batches(model, args, "train", layers, config)
    print(f"{len(batches)} batches, {time.time() - started:.0f} s", flush=True)

    counts = torch.zeros(config["vocab_size"], device=args.device)
    for batch in batches:
        answers = batch.ids[:, batch.prompt_size :]
        counts += torch.bincount(answers.flatten(), minlength=config["vocab_size"])
    counts[config["pad_token_id"]] = 0
    draft_ids = counts.topk(args.draft_vocab_size).indices.sort().values
    share = (counts[draft_ids].sum() / counts.sum()).item()
    print(f"{100 * share:.1f} % of the answers' tokens are drafted", flush=True)
    vocab = torch.full((config["vocab_size"],), -100, device=args.device)
    vocab[draft_ids] = torch.arange(args.draft_vocab_size, device=args.device)

    embed = model.model.embed_tokens.requires_grad_(False)
    head = make_head(config, args).to(args.device)
    with torch.no_grad():
        head.lm_head.weight.copy_(embed.weight[draft_ids])
        head.norm.weight.copy_(model.model.norm.weight)
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters", flush=True)
    tables = {"lm_head.weight"}
    matrices = [p for n, p in head.named_parameters() if p.ndim == 2 and n not in tables]
    others = [p for n, p in head.named_parameters() if p.ndim != 2 or n in tables]
    optimizers = [
        Muon(matrices, lr=args.learning_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=args.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    rng, order, recent = random.Random(args.seed), [], []
    for step in range(args.steps):
        if not order:
            order = list(range(len(batches)))
            rng.shuffle(order)
        batch = batches[order.pop()]
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * learning_rate_at(step, args.steps)
        with torch.autocast(torch.device(args.device).type, dtype=torch.bfloat16):
            loss = 0
            for i, logits in enumerate(head.unroll(batch, embed, args.unrolled)):
                labels, _ = labels_of(batch, i, vocab, end)
                # A step counts as often as the drafts before it may be right.
                each = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
                loss = loss + args.decay**i * each
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        head.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        if step % 500 == 499 or step + 1 == args.steps:
            mean, shares = measure(head, embed, held_out, vocab, end)
            print(
                f"step {step + 1:5}  loss {torch.stack(recent).mean().item():.3f}  {mean:.3f} tokens a step  "
                f"{' '.join(f'{100 * s:.1f}' for s in shares)} % right  {time.time() - started:.0f} s",
                flush=True,
            )
            recent = []
    write_head(head.state_dict(), draft_ids, args.intermediate_size, config, args.output)


def round_to_int8(weight):
    """Integers with a scale for each output, as compressed-tensors has them."""
    import torch

    scale = (weight.float().abs().amax(1, keepdim=True) / 127).clamp(min=1e-8).bfloat16()
    return (weight.float() / scale.float()).round().clamp(-127, 127).to(torch.int8), scale


def write_head(tensors: dict, draft_ids, intermediate_size: int, config: dict, folder: pathlib.Path) -> None:
    """`tensors` by the names of the head's modules."""
    import torch
    from safetensors.torch import save_file

    stored = {}
    for name, tensor in tensors.items():
        module = name.split(".")[0]
        if module.endswith("_proj"):
            block = "self_attn" if module[0] in "qkvo" else "mlp"
            name = f"midlayer.{block}.{name}"
        elif module.endswith("norm") and module != "norm":
            name = f"midlayer.{name}"
        if tensor.ndim == 2:
            stored[name], stored[name + "_scale"] = round_to_int8(tensor.cpu())
        else:
            stored[name] = tensor.to("cpu", torch.bfloat16)
    ids = draft_ids.cpu()
    stored["d2t"] = ids - torch.arange(len(ids))
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in stored.items()}, folder / "model.safetensors", {"format": "pt"})
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "format": "int-quantized"}
    written = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{
            name: config[name]
            for name in (
                "vocab_size hidden_size num_attention_heads num_key_value_heads head_dim hidden_act "
                "max_position_embeddings rms_norm_eps rope_theta"
            ).split()
        },
        "draft_vocab_size": len(ids),
        "intermediate_size": intermediate_size,
        "num_hidden_layers": 1,
        "norm_before_residual": True,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "config_groups": {"group_0": group},
            "ignore": [],
            "quantization_status": "compressed",
        },
    }
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    print(f"{folder}: {sum((folder / f).stat().st_size for f in ('config.json', 'model.safetensors')):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prompts", "answers", "train"])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "lexicon-data")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "lexicon")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "models" / "lexicon-eagle3")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompts", type=int, default=160_000)
    parser.add_argument("--most-prompts", type=int, help="answer, or train on, fewer")
    parser.add_argument("--rows", type=int, default=1024, help="answers of a batch")
    parser.add_argument("--answer-batch", type=int, default=8192)
    parser.add_argument("--draft-vocab-size", type=int, default=4096)
    parser.add_argument("--intermediate-size", type=int, default=1536)
    parser.add_argument("--unrolled", type=int, default=DRAFTS, help="steps of the head in training")
    parser.add_argument("--decay", type=float, default=0.8, help="of a step's weight from that before it")
    parser.add_argument("--steps", type=int, default=1570)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    {"prompts": make_prompts, "answers": make_answers, "train": train}[args.step](args)


if __name__ == "__main__":
    main()
