#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.cc: the character classes that Hugging Face's tokenizers sees.

Its regular expressions, its Rust standard library and its normaliser each carry their own version of
Unicode, so the classes are asked of the library itself, one code point at a time, and frozen.

    pip install tokenizers
    scripts/make_unicode_tables.py > src/tokenizer/unicode_tables.cc
"""
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def removed_by(pre_tokenizer):
    """The code points that a pre-tokenizer with the behaviour `removed` removes."""
    kept = set()
    for i in range(0, len(CODE_POINTS), 4096):
        text = "".join(map(chr, CODE_POINTS[i : i + 4096]))
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            kept.update(map(ord, piece))
    return set(CODE_POINTS) - kept


def word_characters():
    """What the pre-tokenizer Whitespace joins to a letter: Rust's \\w."""
    found = set()
    for i in range(0, len(CODE_POINTS), 1024):
        text = "".join("a" + chr(c) + " " for c in CODE_POINTS[i : i + 1024])
        for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text):
            if len(piece) == 2 and piece[0] == "a":
                found.add(ord(piece[1]))
    return found


def numeric_characters():
    """What the pre-tokenizer Digits isolates: Rust's char::is_numeric."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for i in range(0, len(CODE_POINTS), 1024):
        text = "".join("!!" + chr(c) + "!!" for c in CODE_POINTS[i : i + 1024])
        for piece, _ in digits.pre_tokenize_str(text):
            if len(piece) == 1:
                found.add(ord(piece))
    return found


OVERLAY, IOTA = "\u0334", "\u0345"  # combining classes 1 and 240: the lowest and the highest


def reorders(normalize, char):
    """Whether `char` moves past a mark of a lower or a higher class: it has a class itself."""
    return (normalize("b" + char + OVERLAY) != "b" + char + OVERLAY,
            normalize("b" + IOTA + char) != "b" + IOTA + char)


def normalization_sets():
    """(code points that NFC may change or join to the one before, code points that the library's
    normaliser does not know, though a newer one might)."""
    hf = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(),
          "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}
    nfc = hf["NFC"].normalize_str
    unsafe, unknown = set(), set()
    for code_point in CODE_POINTS:
        char = chr(code_point)
        moves = reorders(nfc, char)
        if nfc(char) != char or any(moves):
            unsafe.add(code_point)
        same = moves == reorders(lambda s: unicodedata.normalize("NFC", s), char) and all(
            n.normalize_str(char) == unicodedata.normalize(form, char) for form, n in hf.items())
        if not same or unicodedata.category(char) == "Cn":
            unknown.add(code_point)
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(p, 16)) for p in parts)
            if nfc(pair) == char:
                unsafe.add(ord(pair[1]))
    unsafe.update(range(0x1161, 0x1176))  # Hangul vowels and final consonants join what precedes
    unsafe.update(range(0x11A8, 0x11C3))
    unknown.add(0x11A7)  # utf8proc takes it for a final consonant, which it is not
    return unsafe, unknown


def gaps_and_lengths(code_points):
    """The set as runs: how many code points to skip, how many to take, and so on."""
    out, previous_end, run = [], 0, None
    for c in sorted(code_points) + [None]:
        if run and c == run[1]:
            run[1] += 1
            continue
        if run:
            out += [run[0] - previous_end, run[1] - run[0]]
            previous_end = run[1]
        run = [c, c + 1] if c is not None else None
    return out


def lower_runs():
    """Runs of letters at equal distances whose lower case is equally far away: first, count, step,
    distance. U+0130, whose lower case is two characters, is left out."""
    lower = normalizers.Lowercase().normalize_str
    runs = []
    for code_point in CODE_POINTS:
        to = lower(chr(code_point))
        if len(to) != 1 or ord(to) == code_point:
            continue
        distance = ord(to) - code_point
        if runs and runs[-1][3] == distance:
            first, count, step, _ = runs[-1]
            gap = code_point - (first + (count - 1) * step)
            if gap == step or (count == 1 and gap <= 2):
                runs[-1][1:3] = [count + 1, gap]
                continue
        runs.append([code_point, 1, 1, distance])
    return runs


def print_lower_runs():
    print("\n// Rust's char::to_lowercase.\nconst LowerRun kLowerRuns[] = {")
    line = "   "
    for run in lower_runs():
        entry = " {%d, %d, %d, %d}," % tuple(run)
        if len(line) + len(entry) > 100:
            print(line)
            line = "   "
        line += entry
    print(f"{line}\n}};")


def print_table(name, comment, code_points):
    print(f"\n// {comment}\nconst std::uint32_t {name}[] = {{")
    line = "   "
    for number in gaps_and_lengths(code_points):
        if len(line) + len(f" {number},") > 100:
            print(line)
            line = "   "
        line += f" {number},"
    print(f"{line}\n}};")


def main():
    split = lambda pattern: removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))
    unsafe, unknown = normalization_sets()
    tables = [
        ("kLetterRuns", "\\p{L} of its regular expressions.", split(r"\p{L}")),
        ("kNumberRuns", "\\p{N} of its regular expressions.", split(r"\p{N}")),
        ("kSpaceRuns", "\\s of its regular expressions: White_Space.", split(r"\s")),
        ("kWordRuns", "\\w of the pre-tokenizer Whitespace and of single-word added tokens.",
         word_characters()),
        ("kPunctuationRuns", "What the pre-tokenizer Punctuation splits at.",
         removed_by(pre_tokenizers.Punctuation("removed"))),
        ("kNumericRuns", "What the pre-tokenizer Digits splits at.", numeric_characters()),
        ("kNfcUnsafeRuns", "What NFC may change, reorder or join to the character before.", unsafe),
        ("kUnknownToNormalizerRuns", "What its normaliser leaves alone because it is older.",
         unknown),
    ]
    print(f"// Made by scripts/make_unicode_tables.py from tokenizers {tokenizers.__version__}: edit that.")
    print("//\n// Each table is a set of code points as runs: skip, take, skip, take...")
    print('#include "tokenizer/unicode_tables.h"\n\n// clang-format off\nnamespace quire::tokenizer_internal {\nnamespace {')
    for table in tables:
        print_table(*table)
    print_lower_runs()
    print("\n}  // namespace\n")
    for name, function in [(t[0], t[0][1:2].lower() + t[0][2:]) for t in tables]:
        snake = "".join("_" + c.lower() if c.isupper() else c for c in function)
        print(f"std::span<const std::uint32_t> {snake}() {{ return {name}; }}")
    print("std::span<const LowerRun> lower_runs() { return kLowerRuns; }")
    print("\n}  // namespace quire::tokenizer_internal")


if __name__ == "__main__":
    main()
