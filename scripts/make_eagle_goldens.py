#!/usr/bin/env python3
"""Makes tests/golden/eagle/: small EAGLE and EAGLE-3 heads for models of tests/golden/models/, and what they compute.

    python3 scripts/make_eagle_goldens.py [--out tests/golden/eagle] [CASE ...]

Needs torch, transformers, safetensors and speculators 0.9; runs on a CPU in a minute. Weights and tokens come from
fixed seeds. Each case is a head's folder with:

golden.json
    case, about, and the versions of the packages
    method       "eagle" or "eagle3"
    target       the folder of tests/golden/models/ that the head is for
    token_ids    T + 1 tokens
    chain_row    the row that drafts begin behind
golden.safetensors
    states       [T, layers * hidden_size]: the inputs of the target's layers that the head sees, by transformers;
                 for "eagle" the input of its output layer
    logits       [T, draft_vocab_size]: of row i, which has token i + 1 and the states of i
    chain        [4, draft_vocab_size]: of chain_row and the rows behind it, each of these with the head's own output of
                 the row before in place of states

Everything is computed in float32, EAGLE-3 by the speculators package's Eagle3DraftModel, EAGLE by a decoder layer of
transformers without its first norm, as in https://github.com/SafeAILab/EAGLE.
"""
import argparse
import json
import os
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding  # noqa: E402

ROOT = Path(__file__).parent.parent
STEPS = 4
TOKENS = 41

CASES = {
    "eagle": dict(
        seed=4,
        about="an EAGLE head, which has a bias in fc and takes the target's embedding and output layer",
        target="llama3",
    ),
    "midlayer": dict(
        seed=1,
        about="the form of the first heads: midlayer, d2t and t2d, the target's embedding",
        target="llama3",
        layers=LlamaConfig,
        aux=[0, 1],
        draft_vocab_size=40,
    ),
    "speculators": dict(
        seed=3,
        about="the form of the speculators package: two layers with norms of queries and keys, an own embedding",
        target="qwen3-bias-sharded",
        layers=Qwen3Config,
        num_layers=2,
        aux=[0, 1, 2],
        draft_vocab_size=48,
        norm_before_residual=True,
    ),
    "shared": dict(
        seed=2,
        about="the target's vocabulary, embedding and output layer; eagle_config names layers by their outputs",
        target="qwen3-tied",
        layers=LlamaConfig,
        aux=[1],
    ),
}


def head_sizes(case: dict, config) -> dict:
    return dict(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=40,
        num_hidden_layers=case.get("num_layers", 1),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        attention_bias=False,
    )


def randomize(head) -> None:
    for name, tensor in head.named_parameters():
        noise = torch.randn(tensor.shape)
        if "norm" in name:
            tensor.copy_(1 + 0.2 * noise)
        else:
            tensor.copy_(noise * (1.0 if "embed" in name else 2 / tensor.shape[-1] ** 0.5))


class EagleHead(torch.nn.Module):
    """One layer whose attention reads fc of a token's embedding and of the state before it."""

    def __init__(self, case: dict, target):
        super().__init__()
        config = LlamaConfig(**head_sizes(case, target.config))
        config._attn_implementation = "eager"
        self.config = config
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=True)
        self.layers = torch.nn.ModuleList([LlamaDecoderLayer(config, 0)])
        self.layers[0].input_layernorm = torch.nn.Identity()
        with torch.no_grad():
            randomize(self)

    def forward(self, target, known, tokens):
        """Of rows: logits, and what is known of the next row."""
        embedded = target.get_input_embeddings()(tokens)
        hidden = self.fc(torch.cat([embedded, known], dim=-1))[None]
        positions = torch.arange(len(tokens))[None]
        mask = torch.full((len(tokens), len(tokens)), float("-inf")).triu(1)[None, None]
        rotary = LlamaRotaryEmbedding(self.config)(hidden, positions)
        hidden = self.layers[0](hidden, attention_mask=mask, position_ids=positions, position_embeddings=rotary)
        hidden = (hidden[0] if isinstance(hidden, tuple) else hidden)[0]
        return target.get_output_embeddings()(hidden), hidden


def compute_eagle(head, target, states, tokens, chain_row: int):
    """The logits of all rows, and those of the chain behind `chain_row`."""
    with torch.no_grad():
        logits, _ = head(target, states, tokens[1:])
        known, chain = states[: chain_row + 1], []
        for _ in range(STEPS):
            of_rows, made = head(target, known, tokens[1 : len(known) + 1])
            chain.append(of_rows[-1])
            known = torch.cat([known, made[-1:]])
    return logits, torch.stack(chain)


def make_head(case: dict, target) -> Eagle3DraftModel:
    config = target.config
    layers = case["layers"](**head_sizes(case, config))
    layers._attn_implementation = "eager"
    head = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=layers,
            draft_vocab_size=case.get("draft_vocab_size", config.vocab_size),
            norm_before_residual=case.get("norm_before_residual", False),
            eagle_aux_hidden_state_layer_ids=case["aux"],
            speculators_config={
                "algorithm": "eagle3",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": STEPS}],
                "default_proposal_method": "greedy",
                "verifier": {"name_or_path": None, "architectures": list(config.architectures)},
            },
        )
    ).float()
    with torch.no_grad():
        randomize(head)
        if case["target"] != "qwen3-bias-sharded":
            head.embed_tokens.weight.copy_(target.get_input_embeddings().weight)
        if "draft_vocab_size" in case:
            ids = torch.randperm(config.vocab_size)[: case["draft_vocab_size"]].sort().values
            head.d2t.copy_(ids - torch.arange(len(ids)))
            head.t2d.zero_()
            head.t2d[ids] = True
        else:
            head.lm_head.weight.copy_(target.get_output_embeddings().weight)
    return head.eval()


def compute(head, states, tokens) -> list[torch.Tensor]:
    """Logits [T, draft_vocab_size] of each step. A step's rows have the tokens that follow."""
    logits = []
    hook = head.lm_head.register_forward_hook(lambda module, inputs, output: logits.append(output[0].clone()))
    with torch.no_grad():
        head(
            hidden_states=states.unsqueeze(0),
            input_ids=tokens[1:].unsqueeze(0),
            document_ids=torch.zeros(1, len(tokens) - 1, dtype=torch.long),
            ttt_steps=STEPS,
        )
    hook.remove()
    return logits


def write_head(name: str, case: dict, head, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.clone() for n, t in head.state_dict().items() if not n.startswith("verifier_")}
    if name == "speculators":
        head.save_pretrained(folder)
        (folder / "config.py").unlink(missing_ok=True)  # the package's source, which is not needed to read the head
        return
    sizes = head.config if name == "eagle" else head.config.transformer_layer_config
    config = {
        field: getattr(sizes, field)
        for field in (
            "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
            "head_dim max_position_embeddings rms_norm_eps attention_bias hidden_act"
        ).split()
    }
    config |= {"model_type": "llama", "torch_dtype": "float32", "rope_theta": 5000.0, "rope_scaling": None}
    tensors.pop("embed_tokens.weight", None)
    if name == "eagle":
        config["architectures"] = ["LlamaForCausalLM"]
    elif name == "midlayer":
        config["architectures"] = ["LlamaForCausalLMEagle3"]
        config["draft_vocab_size"] = case["draft_vocab_size"]
        config["eagle_aux_hidden_state_layer_ids"] = case["aux"]
        tensors = {n.replace("layers.0.", "midlayer."): t for n, t in tensors.items()}
    else:
        config["architectures"] = ["Eagle3LlamaForCausalLM"]
        config["eagle_config"] = {
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in case["aux"]],
            "use_aux_hidden_state": True,
        }
        del tensors["lm_head.weight"]
    tensors = {n: t for n, t in tensors.items() if t is not None}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def make_case(name: str, out: Path) -> None:
    case = CASES[name]
    torch.manual_seed(case["seed"])
    target = AutoModelForCausalLM.from_pretrained(ROOT / "tests/golden/models" / case["target"], dtype=torch.float32)
    head = EagleHead(case, target) if name == "eagle" else make_head(case, target)
    tokens = torch.randint(3, target.config.vocab_size, (TOKENS + 1,))
    with torch.no_grad():
        hidden = target(tokens[None, :-1], output_hidden_states=True).hidden_states
    chain_row = TOKENS - STEPS
    if name == "eagle":
        states = hidden[-1][0]  # behind the final norm
        logits, chain = compute_eagle(head, target, states, tokens, chain_row)
    else:
        states = torch.cat([hidden[layer][0] for layer in case["aux"]], dim=-1)
        steps = compute(head, states, tokens)
        logits, chain = steps[0], torch.stack([step[chain_row] for step in steps])
    folder = out / name
    write_head(name, case, head, folder)
    save_file({"states": states, "logits": logits, "chain": chain}, folder / "golden.safetensors")
    golden = {
        "case": name,
        "about": case["about"],
        "versions": {name: version(name) for name in ("speculators", "torch", "transformers")},
        "method": "eagle" if name == "eagle" else "eagle3",
        "target": case["target"],
        "token_ids": tokens.tolist(),
        "chain_row": chain_row,
    }
    (folder / "golden.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")
    print(f"{name}: logits up to {logits.abs().max():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests/golden/eagle")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all if none is given")
    args = parser.parse_args()
    for name in args.cases or CASES:
        make_case(name, args.out)


if __name__ == "__main__":
    main()
