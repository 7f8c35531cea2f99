#!/usr/bin/env python3
"""Makes tests/golden/quantised/: tiny checkpoints in each published format, and what they stand for.

    python3 scripts/make_quantised_goldens.py [--out tests/golden/quantised] [CASE ...]

Needs torch 2.11, transformers 5.17, compressed-tensors 0.20 and safetensors; runs on a CPU in seconds. compressed-tensors'
formats are packed and unpacked by that package, but for act-order, which it no longer writes. GPTQ's, AWQ's and fp8's are
written here by their published definitions, and compared with nobody's code: compressed-tensors' AutoAWQConverter and
FP8BlockDequantizer and transformers' own fp8 could do that on a CPU. Each case is a folder as Hugging Face publishes a model
(config.json, model.safetensors) with two more files:

golden.json
    case, about, and the versions of the packages
    weights         for each quantised layer its shape and the FNV-1a hash (64 bits) of its dequantised float32 numbers
    prompt_token_ids
golden.safetensors
    logits          float32 [tokens, vocab_size]: transformers', with the dequantised weights, eager, in float32
"""
import argparse
import json
import shutil
from pathlib import Path

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

SIZES = dict(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    tie_word_embeddings=False,
)
PROMPT = [(17 * i + 5 * i * i + 3) % 96 for i in range(40)]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the outputs of a word, from its lowest nibble up


def fnv1a(numbers):
    value = 0xCBF29CE484222325
    for byte in numbers.contiguous().numpy().tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def packed(numbers, bits):
    """Unsigned integers [..., n] as int32 [..., n * bits / 32], the first in the lowest bits."""
    count = 32 // bits
    grouped = numbers.to(torch.int64).unflatten(-1, (-1, count))
    words = (grouped << (torch.arange(count) * bits)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def nearest(weight, bits, group, symmetric, groups_of_inputs, scale_dtype=torch.float16):
    """Rounds weight [n, k] to integers: unsigned numbers [n, k], scales and zero points [n, groups], and what they mean."""
    n, k = weight.shape
    groups = int(groups_of_inputs.max()) + 1
    largest = 2**bits - 1
    scales = torch.empty(n, groups)
    zeros = torch.empty(n, groups)
    for g in range(groups):
        part = weight[:, groups_of_inputs == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scales[:, g] = (high - low) / largest
        zeros[:, g] = (largest + 1) / 2 if symmetric else torch.round(-low / scales[:, g])
    scales = scales.to(scale_dtype)
    spread = scales.float()[:, groups_of_inputs]
    numbers = torch.clamp(torch.round(weight / spread) + zeros[:, groups_of_inputs], 0, largest)
    return numbers, scales, zeros, spread * (numbers - zeros[:, groups_of_inputs])


def in_order(k, group):
    return torch.arange(k) // (k if group == -1 else group)


def gptq(bits=4, group=32, symmetric=True, act_order=False, v2=False):
    """As AutoGPTQ and GPTQModel store a layer."""

    def store(name, weight, random):
        n, k = weight.shape
        order = in_order(k, group)
        if act_order:
            order = order[torch.randperm(k, generator=random)]
        numbers, scales, zeros, values = nearest(weight, bits, group, symmetric, order)
        qzeros = packed(zeros.T, bits)
        if not v2:
            less = sum(1 << (bits * i) for i in range(32 // bits))
            qzeros = (qzeros.to(torch.int64) - less + 2**31) % 2**32 - 2**31
        tensors = {
            "qweight": packed(numbers, bits).T,
            "qzeros": qzeros.to(torch.int32),
            "scales": scales.T,
            "g_idx": order.to(torch.int32),
        }
        return tensors, values

    config = dict(
        quant_method="gptq",
        bits=bits,
        group_size=group,
        sym=symmetric,
        desc_act=act_order,
        checkpoint_format="gptq_v2" if v2 else "gptq",
    )
    return store, config


def awq(group=32):
    """As AutoAWQ's gemm version stores a layer."""

    def shuffled(numbers):
        return packed(numbers.unflatten(-1, (-1, 8))[..., AWQ_ORDER].flatten(-2), 4)

    def store(name, weight, random):
        numbers, scales, zeros, values = nearest(weight, 4, group, False, in_order(weight.shape[1], group))
        return {"qweight": shuffled(numbers.T), "qzeros": shuffled(zeros.T), "scales": scales.T}, values

    config = dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")
    return store, config


def to_float8(weight, scale):
    return (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def fp8(block):
    """As transformers (blocks) and AutoFP8 (one scale a layer) store it."""

    def store(name, weight, random):
        n, k = weight.shape
        rows, columns = block or (n, k)
        scales = torch.empty(-(-n // rows), -(-k // columns))
        for r in range(scales.shape[0]):
            for c in range(scales.shape[1]):
                part = weight[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns]
                scales[r, c] = part.abs().max() / 448
        spread = scales.repeat_interleave(rows, 0)[:n].repeat_interleave(columns, 1)[:, :k]
        numbers = to_float8(weight, spread)
        if block:
            return {"weight": numbers, "weight_scale_inv": scales}, numbers.float() * spread
        tensors = {"weight": numbers, "weight_scale": scales[0, 0], "input_scale": torch.tensor(0.5)}
        return tensors, numbers.float() * spread

    config = dict(quant_method="fp8", activation_scheme="dynamic" if block else "static")
    return store, config | (dict(weight_block_size=list(block)) if block else {})


def scales_of(weight, args):
    """Scales, and zero points where they are not symmetric, of compressed-tensors' shapes."""
    n, k = weight.shape
    strategy = str(args.strategy)
    rows, columns = {
        "tensor": (n, k),
        "channel": (1, k),
        "group": (1, args.group_size or k),
        "block": tuple(args.block_structure or (n, k)),
    }[strategy]
    blocks = weight.new_zeros(-(-n // rows) * rows, -(-k // columns) * columns)
    blocks[:n, :k] = weight
    blocks = blocks.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2)
    low, high = blocks.amin((2, 3)).clamp(max=0), blocks.amax((2, 3)).clamp(min=0)
    if args.symmetric:
        largest = 448 if args.type == "float" else (2**args.num_bits - 1) / 2
        scales, zeros = torch.maximum(-low, high) / largest, None
    else:
        scales = (high - low) / (2**args.num_bits - 1)
        scales = scales.to(torch.bfloat16).float()
        zeros = torch.round(-(2 ** (args.num_bits - 1)) - low / scales).to(torch.int8)
    scales = scales.to(torch.bfloat16)
    if strategy == "tensor":
        scales, zeros = scales.reshape(1), None if zeros is None else zeros.reshape(1)
    return scales, zeros


def compressed(groups, ignore=(), input_scales=False):
    """groups: (format, targets, the weights' arguments), the first whose target ends a layer's name, else the last."""

    def group_of(name):
        return next((group for group in groups if any(name.endswith(t[5:-1]) for t in group[1])), groups[-1])

    def store(name, weight, random):
        kind, targets, arguments = group_of(name)
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        scales, zeros = scales_of(weight, args)
        state = {"weight": weight.to(torch.float32), "weight_scale": scales.float()}
        if zeros is not None:
            state["weight_zero_point"] = zeros
        package = PackedQuantizationCompressor if kind == "pack-quantized" else NaiveQuantizationCompressor
        tensors = package.compress(state, scheme)
        values = package.decompress(tensors, scheme)["weight"]
        tensors["weight_scale"] = scales
        if input_scales:
            tensors["input_scale"] = torch.tensor([0.25])
        return tensors, values

    config = dict(
        quant_method="compressed-tensors",
        format=groups[0][0] if len({g[0] for g in groups}) == 1 else "mixed-precision",
        config_groups={
            f"group_{i}": dict(targets=targets, weights=weights, format=kind)
            for i, (kind, targets, weights) in enumerate(groups)
        },
        ignore=list(ignore),
        quantization_status="compressed",
    )
    return store, config


def packed_act_order(group=32):
    """compressed-tensors' pack-quantized with actorder "group": the group of each input is stored."""

    def store(name, weight, random):
        n, k = weight.shape
        order = in_order(k, group)[torch.randperm(k, generator=random)]
        numbers, scales, zeros, values = nearest(weight, 4, group, False, order)
        tensors = {
            "weight_packed": packed(numbers, 4),
            "weight_scale": scales,
            "weight_zero_point": packed(zeros.T, 4).T,
            "weight_g_idx": order.to(torch.int32),
            "weight_shape": torch.tensor([n, k]),
        }
        return tensors, values

    weights = dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=group, actorder="group")
    config = dict(
        quant_method="compressed-tensors",
        format="pack-quantized",
        config_groups={"group_0": dict(targets=["Linear"], weights=weights)},
        ignore=["lm_head"],
    )
    return store, config


LLAMA, QWEN2, PHI3 = "Llama", "Qwen2", "Phi3"
DOWN = "re:.*down_proj$"

# name -> about, family, (how a layer is stored, quantization_config), the layers that stay dense
CASES = {
    "gptq-4bit": ("4 bits, groups of 32, symmetric", LLAMA, gptq(), ["lm_head"]),
    "gptq-act-order": (
        "4 bits, act-order, zero points down to 4 in the first version's words",
        QWEN2,
        gptq(symmetric=False, act_order=True),
        ["lm_head"],
    ),
    "gptq-v2-8bit": (
        "8 bits, a scale for each output, the second version's zero points",
        LLAMA,
        gptq(bits=8, group=-1, symmetric=False, v2=True),
        ["lm_head"],
    ),
    "gptq-fused": ("qkv_proj and gate_up_proj as one, groups of 128", PHI3, gptq(group=128), ["lm_head"]),
    "awq": ("4 bits, groups of 64, AWQ's order; one kind of layer kept", QWEN2, awq(group=64), ["lm_head", "o_proj"]),
    "ct-pack-4bit": (
        "groups of 32, symmetric; a layer is ignored by a regular expression",
        LLAMA,
        compressed(
            [("pack-quantized", ["Linear"], dict(num_bits=4, strategy="group", group_size=32))],
            ["lm_head", "re:.*layers[.]1[.]self_attn.*"],
        ),
        ["lm_head", "layers.1.self_attn"],
    ),
    "ct-pack-mixed": (
        "two groups: 8 bits with a scale for each output, 4 bits with zero points",
        QWEN2,
        compressed(
            [
                ("pack-quantized", [DOWN], dict(num_bits=8, strategy="channel")),
                ("pack-quantized", ["Linear"], dict(num_bits=4, strategy="group", group_size=64, symmetric=False)),
            ],
            ["lm_head"],
        ),
        ["lm_head"],
    ),
    "ct-pack-act-order": ("4 bits with zero points and the group of each input", LLAMA, packed_act_order(), ["lm_head"]),
    "ct-int8": (
        "a scale for each output; one with a zero point for the whole of some layers",
        LLAMA,
        compressed(
            [
                ("int-quantized", [DOWN], dict(num_bits=8, strategy="tensor", symmetric=False)),
                ("int-quantized", ["Linear"], dict(num_bits=8, strategy="channel")),
            ]
        ),
        [],
    ),
    "ct-float8": (
        "blocks, one scale for the whole of some layers; static activations; fused",
        PHI3,
        compressed(
            [
                (
                    "float-quantized",
                    [DOWN],
                    dict(num_bits=8, type="float", strategy="block", block_structure=[48, 48]),
                ),
                ("float-quantized", ["Linear"], dict(num_bits=8, type="float", strategy="tensor")),
            ],
            ["lm_head"],
            input_scales=True,
        ),
        ["lm_head"],
    ),
    "fp8-block": ("blocks of 32 x 48, which end beyond the layers", LLAMA, fp8((32, 48)), ["lm_head"]),
    "fp8-block-128": ("blocks of 128 x 128, which end beyond some layers", LLAMA, fp8((128, 128)), ["lm_head"]),
    "fp8-tensor": ("one scale a layer, static activations", QWEN2, fp8(None), ["lm_head"]),
}


def make_model(family, random):
    config = getattr(transformers, family + "Config")(**SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = getattr(transformers, family + "ForCausalLM")._from_config(config, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data = 1 + 0.2 * torch.randn(parameter.shape, generator=random)
        else:
            parameter.data = 0.12 * torch.randn(parameter.shape, generator=random)
        parameter.data = parameter.data.to(torch.float16).float()  # as it is stored
    return model.float().eval()


def make_case(name, out):
    about, family, (store, quantization), dense = CASES[name]
    random = torch.Generator().manual_seed(sum(name.encode()))
    model = make_model(family, random)
    tensors, weights = {}, {}
    state = model.state_dict()
    for key, value in state.items():
        layer = key.removesuffix(".weight")
        is_linear = value.dim() == 2 and "embed_tokens" not in key
        if not is_linear or any(part in layer for part in dense):
            tensors[key] = value.to(torch.float16)
            continue
        stored, values = store(layer, value, random)
        assert (values - value).abs().max() < 0.1, layer
        tensors |= {f"{layer}.{leaf}": tensor for leaf, tensor in stored.items()}
        value.copy_(values)
        weights[layer] = dict(shape=list(values.shape), fnv1a=fnv1a(values))
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0]
        exact = model.double()(torch.tensor([PROMPT])).logits[0]
    assert (logits - exact).abs().max() < 2e-6 * exact.abs().max()

    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "awq":
        quantization = quantization | dict(modules_to_not_convert=["o_proj"])
    config = model.config.to_dict() | dict(
        architectures=[family + "ForCausalLM"], dtype="float16", quantization_config=quantization
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "model.safetensors")
    save_file({"logits": logits.contiguous()}, folder / "golden.safetensors")
    golden = dict(
        case=name,
        about=about,
        torch=torch.__version__,
        transformers=transformers.__version__,
        compressed_tensors=compressed_tensors.__version__,
        weights=weights,
        prompt_token_ids=PROMPT,
    )
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {len(weights)} layers, {size // 1000} kB, logits up to {logits.abs().max():.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/golden/quantised")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    arguments = parser.parse_args()
    for name in arguments.cases or CASES:
        make_case(name, arguments.out)


if __name__ == "__main__":
    main()
