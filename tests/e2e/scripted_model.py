"""A model that says a given text, whatever the prompt: real weights, made so that each token calls for the next."""

import array
import contextlib
import json
import pathlib
import tempfile

from gguf_model import write_safetensors
from support import LEXICON

HIDDEN = 64
END = 8191  # the bundled model's <|im_end|>


def byte_level(text):
    """As byte-level vocabularies spell it: GPT-2's table of printable characters for bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return "".join(table[byte] for byte in text.encode())


def tensors_of(matrices):
    tensors = {"model.embed_tokens.weight": matrices["embedding"], "lm_head.weight": matrices["head"],
               "model.norm.weight": matrices["ones"]}
    layer = "model.layers.0."
    for name in ["input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"]:
        tensors[f"{layer}{name}.weight"] = matrices["ones"]
    # Nothing but zeros: what a token leads to is its embedding's business alone.
    for name in ["q", "k", "v", "o"]:
        tensors[f"{layer}self_attn.{name}_proj.weight"] = matrices["zeros"]
    for name in ["gate", "up", "down"]:
        tensors[f"{layer}mlp.{name}_proj.weight"] = matrices["zeros"]
    return tensors


def script_matrices(first, count, endless):
    """Token ids from `first` on are the script. Dimension 0 stands for every other token, and i + 1 for script[i]."""
    size = first + count
    embedding, head = array.array("f", bytes(4 * size * HIDDEN)), array.array("f", bytes(4 * size * HIDDEN))
    for token in range(first):
        embedding[token * HIDDEN] = 1
    for i in range(count):
        embedding[(first + i) * HIDDEN + i + 1] = 1
        head[(first + i) * HIDDEN + i] = 1
    head[(first + count - 1 if endless else END) * HIDDEN + count] = 1
    return {"embedding": ([size, HIDDEN], embedding), "head": ([size, HIDDEN], head),
            "ones": ([HIDDEN], array.array("f", [1] * HIDDEN)),
            "zeros": ([HIDDEN, HIDDEN], array.array("f", bytes(4 * HIDDEN * HIDDEN)))}


@contextlib.contextmanager
def scripted_model(chat_template, script, endless=False, by_tokenizer=True):
    """Its folder. `script` holds the texts of up to 63 tokens; after them the model ends its turn, or goes on with the
    last one for ever. `by_tokenizer`: the tokenizer cuts texts into these tokens, prompts as well, as that of a real model
    does. A constraint that leaves no choice takes the tokenizer's tokens.
    """
    assert len(script) < HIDDEN
    tokenizer = json.loads((LEXICON / "tokenizer.json").read_text())
    config = json.loads((LEXICON / "config.json").read_text())
    first = config["vocab_size"]
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    for i, text in enumerate(script):
        assert byte_level(text) not in vocabulary, f"the vocabulary has {text!r} already"
        # No merge leads to these.
        if not by_tokenizer:
            vocabulary[byte_level(text)] = first + i
        else:
            tokenizer["added_tokens"].append({"id": first + i, "content": text, "single_word": False, "lstrip": False,
                                              "rstrip": False, "normalized": False, "special": False})
    config.update(vocab_size=first + len(script), hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=1,
                  num_attention_heads=1, num_key_value_heads=1, head_dim=HIDDEN, tie_word_embeddings=False,
                  torch_dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "chat_template.jinja").write_text(chat_template)
        for name in ["tokenizer_config.json", "generation_config.json"]:
            (folder / name).write_bytes((LEXICON / name).read_bytes())
        tensors = tensors_of(script_matrices(first, len(script), endless))
        write_safetensors(folder / "model.safetensors",
                          {name: ("F32", shape, values.tobytes()) for name, (shape, values) in tensors.items()})
        yield folder
