"""Converts a model folder to GGUF, as llama.cpp's converter does it, with nothing but Python.

    python3 tests/e2e/gguf_model.py MODEL OUT.gguf [--type Q8_0] [--parts 2]

Matrices of other types than the model's own (F32, F16, BF16, Q8_0, Q4_0) are converted; those whose rows are no whole
blocks stay as they are. Vectors become F32.
"""

import argparse
import array
import json
import math
import pathlib
import struct

ALIGNMENT = 32
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}
BLOCK_TYPES = ("Q4_0", "Q8_0")
K_TYPES = ("Q4_K", "Q6_K")  # nothing is converted to these: tests make up their blocks
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Phi3ForCausalLM": "phi3",
                 "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
MODULES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
           "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
           "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
           "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
           "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


class Gguf:
    """The metadata and tensors of a file."""

    def __init__(self):
        self.entries = []
        self.tensors = []  # (name, row-major shape, type, bytes)

    @staticmethod
    def text(value):
        encoded = value.encode()
        return struct.pack("<Q", len(encoded)) + encoded

    def put(self, key, kind, value):
        self.entries.append(self.text(key) + struct.pack("<I", kind) + value)

    def integer(self, key, value):
        self.put(key, 4, struct.pack("<I", value))

    def number(self, key, value):
        self.put(key, 6, struct.pack("<f", value))

    def boolean(self, key, value):
        self.put(key, 7, struct.pack("<?", value))

    def string(self, key, value):
        self.put(key, 8, self.text(value))

    def strings(self, key, values):
        self.put(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(self.text, values)))

    def integers(self, key, values):
        self.put(key, 9, struct.pack("<IQ", 5, len(values)) + struct.pack(f"<{len(values)}i", *values))

    def floats(self, key, values):
        self.put(key, 9, struct.pack("<IQ", 6, len(values)) + struct.pack(f"<{len(values)}f", *values))

    def write(self, path):
        header = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.entries)) + b"".join(self.entries)
        offset = 0
        for name, shape, kind, data in self.tensors:
            header += self.text(name) + struct.pack("<I", len(shape))
            header += struct.pack(f"<{len(shape)}Q", *reversed(shape))
            header += struct.pack("<IQ", TYPES[kind], offset)
            offset += padded(len(data))
        with open(path, "wb") as file:
            file.write(header.ljust(padded(len(header)), b"\0"))
            for *_, data in self.tensors:
                file.write(data.ljust(padded(len(data)), b"\0"))


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        tensors[name] = (tensor["dtype"], tensor["shape"], content[8 + length + begin:8 + length + end])
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, bytearray()
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats_of(dtype, data):
    if dtype == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        data = bytes(wide)
    elif dtype == "F16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    return array.array("f", data)


def blocks(values):
    for start in range(0, len(values), 32):
        yield values[start:start + 32]


def q8_0(values):
    out = bytearray()
    for block in blocks(values):
        scale = max(map(abs, block)) / 127
        inverse = 1 / scale if scale else 0
        out += struct.pack("<e32b", scale, *[round(value * inverse) for value in block])
    return bytes(out)


def q4_0(values):
    out = bytearray()
    for block in blocks(values):
        scale = max(block, key=abs) / -8
        inverse = 1 / scale if scale else 0
        numbers = [min(15, math.floor(value * inverse + 8.5)) for value in block]
        out += struct.pack("<e16B", scale, *[numbers[i] | numbers[i + 16] << 4 for i in range(16)])
    return bytes(out)


def values_of(kind, data):
    """What the blocks of a tensor stand for, as F32."""
    values = array.array("f")
    if kind == "Q4_K":
        for scale, least, packed, pairs in struct.iter_unpack("<ee12s128s", data):
            factors = k_factors(packed)
            for group in range(8):
                numbers = [pair >> group % 2 * 4 & 15 for pair in pairs[group // 2 * 32:group // 2 * 32 + 32]]
                factor, offset = scale * factors[0][group], least * factors[1][group]
                values.extend(factor * number - offset for number in numbers)
    elif kind == "Q6_K":
        for low, high, factors, scale in struct.iter_unpack("<128s64s16se", data):
            for i in range(256):
                half, quarter, place = i // 128, i % 128 // 32, i % 32
                number = low[64 * half + quarter % 2 * 32 + place] >> quarter // 2 * 4 & 15
                number |= (high[32 * half + place] >> 2 * quarter & 3) << 4
                factor = factors[i // 16] - (factors[i // 16] >> 7) * 256
                values.append(scale * factor * (number - 32))
    elif kind == "Q8_0":
        for scale, *numbers in struct.iter_unpack("<e32b", data):
            values.extend(scale * number for number in numbers)
    else:
        for scale, *pairs in struct.iter_unpack("<e16B", data):
            values.extend(scale * ((pair & 15) - 8) for pair in pairs)
            values.extend(scale * ((pair >> 4) - 8) for pair in pairs)
    return values.tobytes()


def k_factors(packed):
    """The factors of Q4_K's eight scales, and of its eight minimums."""
    low, high, mixed = packed[:4], packed[4:8], packed[8:]
    return ([number & 63 for number in low] + [mixed[i] & 15 | low[i] >> 6 << 4 for i in range(4)],
            [number & 63 for number in high] + [mixed[i] >> 4 | high[i] >> 6 << 4 for i in range(4)])


def random_blocks(kind, count, random):
    """`count` blocks of one of the K types, whose numbers are about 0.05 at most."""
    if kind == "Q4_K":
        return b"".join(struct.pack("<ee", 5e-5, 4e-4) + random.randbytes(140) for _ in range(count))
    return b"".join(random.randbytes(208) + struct.pack("<e", 1.2e-5) for _ in range(count))


def converted(dtype, data, kind):
    if kind == dtype:
        return data
    values = floats_of(dtype, data)
    if kind == "F32":
        return values.tobytes()
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return {"Q8_0": q8_0, "Q4_0": q4_0}[kind](values)


def in_rotary_order(data, rows, heads):
    """The rows of each head with the two of a rotated pair side by side."""
    size, dim = len(data) // rows, rows // heads
    order = [head * dim + half * dim // 2 + pair for head in range(heads) for pair in range(dim // 2) for half in (0, 1)]
    return b"".join(data[row * size:(row + 1) * size] for row in order)


def tensor_name(name):
    module, leaf = name.rsplit(".", 1)
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if module in whole:
        return f"{whole[module]}.{leaf}"
    layer, part = module.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{MODULES[part]}.{leaf}"


def add_rope(gguf, config, name, head_dim):
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    rotated = int(head_dim * config.get("partial_rotary_factor", 1.0))
    gguf.number(f"{name}.rope.freq_base", theta)
    gguf.integer(f"{name}.rope.dimension_count", rotated)
    original = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    if kind in ("linear", "yarn"):
        gguf.string(f"{name}.rope.scaling.type", kind)
        gguf.number(f"{name}.rope.scaling.factor", rope["factor"])
        if original:
            gguf.integer(f"{name}.rope.scaling.original_context_length", original)
    elif kind == "llama3":
        add_factors(gguf, "rope_freqs.weight", llama3_factors(rope, theta, rotated))
    elif kind == "longrope":
        gguf.integer(f"{name}.rope.scaling.original_context_length", original)
        add_factors(gguf, "rope_factors_long.weight", rope["long_factor"])
        add_factors(gguf, "rope_factors_short.weight", rope["short_factor"])
    elif kind != "default":
        raise SystemExit(f"GGUF has no RoPE of the type {kind}")


def add_factors(gguf, name, factors):
    gguf.tensors.append((name, [len(factors)], "F32", array.array("f", factors).tobytes()))


def llama3_factors(rope, theta, dim):
    """What the frequencies are divided by (transformers' _compute_llama3_parameters)."""
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (i / dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return factors


def add_config(gguf, config):
    name = ARCHITECTURES[config["architectures"][0]]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or (128 if name == "qwen3" else config["hidden_size"] // heads)
    gguf.string("general.architecture", name)
    for key, value in (("block_count", config["num_hidden_layers"]),
                       ("context_length", config["max_position_embeddings"]),
                       ("embedding_length", config["hidden_size"]),
                       ("feed_forward_length", config["intermediate_size"]),
                       ("attention.head_count", heads),
                       ("attention.head_count_kv", config.get("num_key_value_heads") or heads),
                       ("attention.key_length", head_dim), ("attention.value_length", head_dim)):
        gguf.integer(f"{name}.{key}", value)
    gguf.number(f"{name}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        gguf.integer(f"{name}.attention.sliding_window", config["sliding_window"])
    add_rope(gguf, config, name, head_dim)


def add_tokenizer(gguf, folder, pattern):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = {number: (token, 1) for token, number in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = (added["content"], 3 if added["special"] else 4)
    in_order = [tokens[number] for number in range(len(tokens))]
    gguf.string("tokenizer.ggml.model", "gpt2")
    gguf.string("tokenizer.ggml.pre", pattern)
    gguf.strings("tokenizer.ggml.tokens", [token for token, _ in in_order])
    gguf.integers("tokenizer.ggml.token_type", [kind for _, kind in in_order])
    gguf.strings("tokenizer.ggml.merges", [" ".join(merge) for merge in tokenizer["model"]["merges"]])
    numbers = {token: number for number, (token, _) in tokens.items()}
    gguf.integer("tokenizer.ggml.eos_token_id", numbers[settings["eos_token"]])
    gguf.boolean("tokenizer.ggml.add_bos_token", settings["add_bos_token"])
    if "chat_template" in settings:
        gguf.string("tokenizer.chat_template", settings["chat_template"])


def add_weights(gguf, folder, config, kind):
    is_llama = ARCHITECTURES[config["architectures"][0]] == "llama"
    heads = {"q_proj": config["num_attention_heads"],
             "k_proj": config.get("num_key_value_heads") or config["num_attention_heads"]}
    for name, (dtype, shape, data) in sorted(read_safetensors(folder / "model.safetensors").items()):
        module = name.split(".")[-2]
        if is_llama and module in heads:
            data = in_rotary_order(data, shape[0], heads[module])
        wanted = "F32" if len(shape) == 1 else kind or dtype
        if wanted in BLOCK_TYPES and shape[1] % 32:
            wanted = dtype
        gguf.tensors.append((tensor_name(name), shape, wanted, converted(dtype, data, wanted)))


def convert(folder, kind=None, pattern="qwen2"):
    """The model as a Gguf; its matrices are of type `kind`, or of their own."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    gguf = Gguf()
    add_config(gguf, config)
    if (folder / "tokenizer.json").exists():
        add_tokenizer(gguf, folder, pattern)
    add_weights(gguf, folder, config, kind)
    return gguf


def dequantised(gguf):
    """The same with F32 in place of blocks."""
    result = Gguf()
    result.entries = gguf.entries
    result.tensors = [(name, shape, "F32", values_of(kind, data)) if kind in BLOCK_TYPES + K_TYPES
                      else (name, shape, kind, data) for name, shape, kind, data in gguf.tensors]
    return result


def split(gguf, count):
    """The same as `count` files: the first has the metadata too."""
    parts = [Gguf() for _ in range(count)]
    parts[0].entries = list(gguf.entries)
    for number, part in enumerate(parts):
        part.tensors = gguf.tensors[number::count]
        part.integer("split.no", number)
        part.integer("split.count", count)
        part.integer("split.tensors.count", len(gguf.tensors))
    return parts


def write(gguf, path, parts=1):
    """Writes the file, or PATH-00001-of-00002.gguf and so on; returns the first one's path."""
    path = pathlib.Path(path)
    if parts == 1:
        gguf.write(path)
        return path
    names = [path.with_name(f"{path.stem}-{number + 1:05}-of-{parts:05}.gguf") for number in range(parts)]
    for name, part in zip(names, split(gguf, parts)):
        part.write(name)
    return names[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--type", choices=sorted(TYPES.keys() - K_TYPES))
    parser.add_argument("--parts", type=int, default=1)
    arguments = parser.parse_args()
    print(write(convert(arguments.model, arguments.type), arguments.out, arguments.parts))


if __name__ == "__main__":
    main()
