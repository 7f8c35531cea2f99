#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/ with Hugging Face's tokenizers, and compares quire with it at random.

    pip install tokenizers
    scripts/make_tokenizer_goldens.py small    # train the small tokenizers again
    scripts/make_tokenizer_goldens.py cases    # write the expected ids and texts of every tokenizer
    scripts/make_tokenizer_goldens.py differential --quire build/release/src/quire --count 300000

qwen3/ and llama3.2/ hold the tokenizer.json of Qwen/Qwen3-0.6B and meta-llama/Llama-3.2-1B, packed
with xz; the others are trained here and have a few hundred tokens.
"""
import argparse
import json
import lzma
import pathlib
import random
import subprocess
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizer"
CASES = 2500
SEED = 20240229

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
WORDS = """the The quick brown fox don't DON'T I'm we'll it'S 'Ve they'd hello world 12345 6789 3.14
na\u00efve caf\u00e9 e\u0301 \ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e \u4e2d\u6587\u5b57\u7b26
\u043f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0627\u0644\u0639\u0631\u0628\u064a\u0629
\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \U0001f468\u200d\U0001f469\u200d\U0001f467
\U0001f3f3\ufe0f\u200d\U0001f308 \u00bd \u00b2 \u2167 \u2460 def f(x): return x+1 // /* */ http://a.b/c?d=e&f=1
\ufeff \u200b \u200d \u017f '\u017f \u00df \ufb01 \u212b \u2126 \u01c6 \u0345 \u0334 \u0308\u0301
\u1112\u1161\u11ab \u0958 \U0002f800 \u0344 \u0130 <0x41> <unk> \u2581 \u2581\u2581 \u0120 \u010a""".split()
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", " \n ", "\u00a0", "\u3000", "\u2028",
          "\x85", "\x0b", "\x0c", "\x1c", "\u180e", "\u2009", " " * 7, " " * 33, "\n \n  "]
RANGES = [(0x300, 0x370), (0x61, 0x7B), (0x1100, 0x1200), (0x900, 0xE00), (0xAC00, 0xD7A4),
          (0xC0, 0x180), (0x3040, 0x3100), (0x1F300, 0x1FB00), (0x4E00, 0x9FFF), (0, 0x100)]


def random_text(rng, added):
    style, pieces = rng.random(), []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 30])):
        kind = rng.random()
        if style < 0.1:
            pieces.append(chr(rng.choice(CODE_POINTS)))
        elif style < 0.25:
            pieces.append(chr(rng.randrange(0x20, 0x250)))
        elif style < 0.4:
            pieces.append(chr(rng.randrange(*rng.choice(RANGES))))
        elif style < 0.5:
            pieces.append(rng.choice("aAsSdDtTmMlLrReEvV'  \n\r\t019._-/\u017f\u2019"))
        elif kind < 0.4:
            pieces.append(rng.choice(WORDS))
        elif kind < 0.68:
            pieces.append(rng.choice(SPACES))
        elif kind < 0.76 and added:
            pieces.append(rng.choice(added))
        elif kind < 0.81:
            pieces.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
        elif kind < 0.85:
            pieces.append(chr(rng.randrange(0, 0x20)))
        elif kind < 0.9:
            pieces.append(rng.choice("!?.,;:()[]{}<>|@#$%^&*-_=+`~\"'/\\") * rng.randrange(1, 5))
        elif kind < 0.92:
            pieces.append(rng.choice("aA.! \n=-") * rng.randrange(20, 120))
        else:
            pieces.append(chr(rng.choice(CODE_POINTS)))
    return "".join(pieces)


def load(folder):
    packed = folder / "tokenizer.json.xz"
    if packed.exists():
        return Tokenizer.from_str(lzma.decompress(packed.read_bytes()).decode())
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def added_contents(tokenizer):
    return [t.content for _, t in sorted(tokenizer.get_added_tokens_decoder().items())][:64]


# --- the small tokenizers ------------------------------------------------------------------------

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "When the weather is fine, they'll walk to the river; when it isn't, they won't.",
    "She said: \"I've seen 1234 birds in 2024, and 56 of them were blue!\"",
    "for (int i = 0; i < n; ++i) { total += values[i] * weights[i]; }  // add them up",
    "def tokenize(text):\n    return [token for token in text.split() if token]\n",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund. Stra\u00dfe, M\u00e4dchen, sch\u00f6n.",
    "Le renard brun rapide saute par-dessus le chien paresseux; \u00e0 bient\u00f4t, No\u00ebl!",
    "\u042d\u0442\u043e \u043f\u0440\u043e\u0441\u0442\u043e\u0439 \u0442\u0435\u043a\u0441\u0442 "
    "\u043d\u0430 \u0440\u0443\u0441\u0441\u043a\u043e\u043c \u044f\u0437\u044b\u043a\u0435.",
    "\u8fd9\u662f\u4e00\u4e2a\u7b80\u5355\u7684\u4e2d\u6587\u53e5\u5b50\u3002\u65e5\u672c\u8a9e\u306e"
    "\u6587\u7ae0\u3067\u3059\u3002",
    "  indented text    with   runs of spaces\n\n\nand blank lines\t\ttabs",
] * 4


def train_sentencepiece_like():
    """A vocabulary as SentencePiece's BPE makes it: <unk>, <s>, </s>, 256 bytes, pieces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, min_frequency=2,
                                  special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens)
    tokenizer.train_from_iterator(CORPUS, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
    data["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    data["post_processor"] = json.loads(processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]).__getstate__())
    return data


def llama2_style():
    data = train_sentencepiece_like()
    data["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    data["pre_tokenizer"] = None
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    return data


def mistral_style():
    data = train_sentencepiece_like()
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581",
                             "prepend_scheme": "first", "split": False}
    first = max(data["model"]["vocab"].values()) + 1
    for i, content in enumerate(["[INST]", "[/INST]", "[TOOL_CALLS]"]):
        data["added_tokens"].append({
            "id": first + i, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True})
    return data


def metaspace_split_style():
    """T5-like: Metaspace splits and decodes; no byte fallback, so that <unk> occurs, unfused."""
    data = train_sentencepiece_like()
    data["model"].update(byte_fallback=False, fuse_unk=False)
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581",
                             "prepend_scheme": "always", "split": True}
    data["decoder"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
                       "split": True}
    return data


def train_byte_level(pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, min_frequency=2,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt2_style():
    """ByteLevel with its own pattern, and added tokens with every option."""
    tokenizer = train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    tokenizer.add_tokens([
        AddedToken("<left>", lstrip=True, normalized=False),
        AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False, special=True),
        AddedToken("fox", single_word=True, normalized=False),
        AddedToken("Quick", normalized=True),
        AddedToken("dog dog", normalized=True, single_word=True),
        AddedToken("<|end", normalized=False)])
    return json.loads(tokenizer.to_str())


CL100K = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}|"""
          r""" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
TEKKEN = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"""
          r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"""
          r""" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")


def regex_style(pattern):
    """Split with a pattern that has no scanner of its own, then ByteLevel."""
    tokenizer = train_byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tokenizer.normalizer = normalizers.NFD()
    return json.loads(tokenizer.to_str())


def words_style():
    """The other pre-tokenizers and split behaviours, on characters."""
    split = pre_tokenizers.Split
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(),
                                                 normalizers.Replace(Regex(r"\s{3,}"), " .. ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        split("e", "merged_with_previous"), split("o", "merged_with_next"),
        split(Regex(r"[\s\p{N}]"), "contiguous"), split(Regex(r"[a-z]+"), "removed", invert=True),
        pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Whitespace()])
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=["<unk>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())


SMALL = {
    "llama2-style": llama2_style,
    "mistral-style": mistral_style,
    "metaspace-style": metaspace_split_style,
    "gpt2-style": gpt2_style,
    "cl100k-style": lambda: regex_style(CL100K),
    "tekken-style": lambda: regex_style(TEKKEN),
    "words-style": words_style,
}


def make_small():
    for name, make in SMALL.items():
        folder = GOLDEN / name
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(make(), ensure_ascii=False)
        Tokenizer.from_str(text)
        (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")


# --- the cases -----------------------------------------------------------------------------------


def make_case(tokenizer, text):
    """[text, ids] or, where decoding does not give the text back, [text, ids, decoded, decoded
    without special tokens]."""
    ids = tokenizer.encode(text).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if decoded == text and skipped == text:
        return [text, ids]
    return [text, ids, decoded, skipped]


def make_cases():
    for folder in sorted(p for p in GOLDEN.iterdir() if p.is_dir()):
        tokenizer = load(folder)
        added = added_contents(tokenizer)
        rng = random.Random(SEED)
        texts = ["", " ", "a"] + [random_text(rng, added) for _ in range(CASES)]
        cases = [make_case(tokenizer, t) for t in texts]
        ids = [[rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 12))]
               for _ in range(CASES // 5)]
        data = {
            "made_with": f"tokenizers {tokenizers.__version__}",
            "cases": cases,
            "decodes": [[i, tokenizer.decode(i, skip_special_tokens=False),
                         tokenizer.decode(i, skip_special_tokens=True)] for i in ids],
        }
        packed = lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9)
        (folder / "cases.json.xz").write_bytes(packed)
        print(f"{folder.name}: {len(cases)} texts, {len(packed)} bytes")


# --- the differential run ------------------------------------------------------------------------


def quire_tokenize(quire, folder, lines, *flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([quire, "tokenize", str(folder), "--json", *flags], input=text.encode(),
                          stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(quire, folder, tokenizer, count, seed):
    rng = random.Random(seed)
    added = added_contents(tokenizer)
    wrong = 0
    for start in range(0, count, 5000):
        texts = [random_text(rng, added) for _ in range(min(5000, count - start))]
        expected = [e.ids for e in tokenizer.encode_batch(texts)]
        decoded = tokenizer.decode_batch(expected, skip_special_tokens=True)
        got = [r["token_ids"] for r in quire_tokenize(quire, folder, [{"text": t} for t in texts])]
        back = [r["text"] for r in quire_tokenize(
            quire, folder, [{"token_ids": i} for i in expected], "--skip-special-tokens")]
        for text, want, ids, want_text, got_text in zip(texts, expected, got, decoded, back,
                                                        strict=True):
            if want != ids or want_text != got_text:
                wrong += 1
                print(f"{folder.name}: {ascii(text)}\n  expected {want} {ascii(want_text)}\n"
                      f"  got      {ids} {ascii(got_text)}")
    print(f"{folder.name}: {count} texts, {wrong} differ")
    return wrong


def differential(quire, count, seed):
    wrong = 0
    for folder in sorted(p for p in GOLDEN.iterdir() if p.is_dir()):
        tokenizer = load(folder)
        with tempfile.TemporaryDirectory() as unpacked:
            path = pathlib.Path(unpacked) / folder.name
            path.mkdir()
            (path / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
            wrong += compare(quire, path, tokenizer, count, seed)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["small", "cases", "differential"])
    parser.add_argument("--quire", help="the quire binary, for differential")
    parser.add_argument("--count", type=int, default=100000, help="texts a tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.what == "small":
        make_small()
    elif args.what == "cases":
        make_cases()
    else:
        raise SystemExit(1 if differential(args.quire, args.count, args.seed) else 0)


if __name__ == "__main__":
    main()
