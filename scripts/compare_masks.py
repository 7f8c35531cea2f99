#!/usr/bin/env python3
"""Compares quire's masks of tokens with llguidance's and xgrammar's, token for token.

    scripts/compare_masks.py [--quire PROGRAM] [--with llguidance|xgrammar] FOLDER

FOLDER has a tokenizer.json (Qwen3's, say). Needs numpy and the packages of the libraries, from PyPI:

    pip install llguidance==1.9.1 xgrammar==0.2.8 numpy

PROGRAM (default: build/release/src/quire) is asked with `quire grammar check --masks`.

At each token of each text, and behind it, all say which tokens may come. Prints for each constraint and library at how
many places they differ, and the first tokens of the first place. Tokens that a library takes for special ones, though
they have text (<tool_call>), are counted apart. JSON is without white space. A constraint that a library refuses is
named. What the differences are: docs/structured-output.md.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy

JSON = r"""root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}" ws
pair ::= string ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]" ws
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \t\n]*
"""
TERMS = r"""root ::= expr
expr ::= term (("+"|"-") term)*
term ::= factor (("*"|"/") factor)*
factor ::= ident | number | "(" expr ")" | ident "(" (expr ("," expr)*)? ")"
ident ::= [a-zA-Z_] [a-zA-Z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
"""
CASES = [
    {"regex": "[a-z]+( [a-z]+)*", "texts": ["hello world and more"]},
    {"regex": r"[a-zA-Z0-9._%+\-]+@[a-zA-Z0-9.\-]+\.[a-zA-Z]{2,}", "texts": ["john.doe@example.com"]},
    {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}", "texts": ["2024-12-31"]},
    {"regex": r"\d+", "texts": ["12"]},
    {"regex": r"[^\n]{0,30}\u00e9?\n", "texts": ["Ein sch\u00f6ner Tag \u00e9\n"]},
    {"regex": "(https?|ftp)://[^ /$.?#][^ ]*", "texts": ["https://example.com/a?b=c"]},
    {"regex": r'"([^"\\]|\\["\\/bfnrt])*"', "texts": ['"a \\" b and \u65e5\u672c\u8a9e"']},
    {"regex": "[\u0400-\u04ff ]{3,20}", "texts": ["\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440"]},
    {"grammar": 'root ::= "(" root ")" | [a-z]+', "texts": ["(((abc)))"]},
    {"grammar": JSON, "texts": ['{"a": [1, 2.5e3, {"b": null}], "c": "text \\u00e9"}']},
    {"grammar": TERMS, "texts": ["foo(bar,baz)*(3+x)", "a-(b)/2.5"]},
    {"grammar": 'root ::= ("- " [^\\n]+ "\\n")+', "texts": ["- one\n- two\n"]},
    {"json_schema": {"type": "string", "maxLength": 5}, "texts": ['"ab c"', '"\u00e9\u65e5\\n"']},
    {"json_schema": {"type": "string", "minLength": 3}, "texts": ['"abcd"']},
    {"json_schema": {"type": "string", "pattern": "^[a-z]+-[0-9]{2}$"}, "texts": ['"abc-12"']},
    {"json_schema": {"enum": ["red", "green", 1, None]}, "texts": ['"red"', "null"]},
    {"json_schema": {"type": "integer", "minimum": -5, "maximum": 120}, "texts": ["-3", "117"]},
    {"json_schema": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
     "texts": ["[true,false,true]"]},
    {"json_schema": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                     "required": ["name", "age"], "additionalProperties": False},
     "texts": ['{"name":"x y","age":30}']},
]


def quire_masks(program, folder):
    lines = "\n".join(map(json.dumps, CASES))
    arguments = [program, "grammar", "check", folder, "--json", "--masks", "--structured-whitespace", "none"]
    result = subprocess.run(arguments, input=lines, capture_output=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def bits_of(mask, count):
    return numpy.unpackbits(numpy.frombuffer(mask, dtype=numpy.uint8), bitorder="little")[:count]


class Llguidance:
    """Places in texts, as llguidance has them."""

    def __init__(self, tokenizer):
        import llguidance  # pylint: disable=import-outside-toplevel
        self.library = llguidance
        self.tokenizer = llguidance.LLTokenizer(tokenizer)
        self.size = self.tokenizer.vocab_size
        self.matcher = None

    def begin(self, case):
        if "regex" in case:
            grammar = self.library.grammar_from("regex", case["regex"])
        elif "grammar" in case:
            grammar = self.library.grammar_from("lark", self.library.gbnf_to_lark.any_to_lark(case["grammar"]))
        else:
            defaults = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
            grammar = self.library.LLMatcher.grammar_from_json_schema(json.dumps(case["json_schema"]),
                                                                      defaults=defaults)
        self.matcher = self.library.LLMatcher(self.tokenizer, grammar)
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def allowed(self):
        bits = bits_of(self.matcher.compute_bitmask(), self.size).copy()
        bits[self.tokenizer.eos_token] = 0
        return bits

    def take(self, token):
        self.matcher.consume_token(token)


class Xgrammar:
    """Places in texts, as xgrammar has them."""

    END = "<|endoftext|>"

    def __init__(self, tokenizer):
        import xgrammar  # pylint: disable=import-outside-toplevel
        self.library = xgrammar
        read = json.loads(tokenizer)
        ids = {**read["model"]["vocab"], **{token["content"]: token["id"] for token in read["added_tokens"]}}
        self.size = max(ids.values()) + 1
        self.end = ids.get(self.END, 0)
        words = [""] * self.size
        for word, number in ids.items():
            words[number] = word
        info = xgrammar.TokenizerInfo(words, vocab_type=xgrammar.VocabType.BYTE_LEVEL, vocab_size=self.size,
                                      stop_token_ids=[self.end], add_prefix_space=False)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self.mask = xgrammar.allocate_token_bitmask(1, self.size)
        self.matcher = None

    def begin(self, case):
        try:
            if "regex" in case:
                grammar = self.compiler.compile_regex(case["regex"])
            elif "grammar" in case:
                grammar = self.compiler.compile_grammar(case["grammar"])
            else:
                grammar = self.compiler.compile_json_schema(json.dumps(case["json_schema"]), any_whitespace=False,
                                                            separators=(",", ":"))
        except RuntimeError as error:
            raise ValueError(str(error).strip().splitlines()[-1]) from error
        self.matcher = self.library.GrammarMatcher(grammar)

    def allowed(self):
        self.mask.fill_(-1)
        self.matcher.fill_next_token_bitmask(self.mask)
        bits = bits_of(self.mask.numpy().tobytes(), self.size).copy()
        bits[self.end] = 0
        return bits

    def take(self, token):
        self.matcher.accept_token(token)


LIBRARIES = {"llguidance": Llguidance, "xgrammar": Xgrammar}


def compare(case, answer, library, special, words):
    """The places, those that differ, those that differ in special tokens only, and an example."""
    places = differing = differing_in_special = 0
    example = None
    for masked in answer["masks"]:
        library.begin(case)
        for i, mask in enumerate(masked["allowed"]):
            ours = bits_of(bytes.fromhex(mask), library.size)
            theirs = library.allowed()[:len(ours)]
            differences = numpy.nonzero(ours != theirs)[0]
            plain = [int(token) for token in differences if token not in special]
            places += 1
            differing += bool(plain)
            differing_in_special += bool(len(differences) and not plain)
            if plain and example is None:
                more = sum(int(ours[token]) for token in plain)
                names = [words.get(token) for token in plain[:6]]
                example = f"{len(plain)} at token {i} ({more} of them allowed by quire): {names}"
            if i < len(masked["token_ids"]):
                library.take(masked["token_ids"][i])
    return places, differing, differing_in_special, example


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quire", default="build/release/src/quire")
    parser.add_argument("--with", dest="library", choices=LIBRARIES, help="both, where it is not given")
    options = parser.parse_args()
    text = (options.folder / "tokenizer.json").read_text()
    read = json.loads(text)
    special = {token["id"] for token in read["added_tokens"]}
    words = {number: word for word, number in read["model"]["vocab"].items()}
    libraries = {name: make(text) for name, make in LIBRARIES.items() if options.library in (None, name)}
    totals = {name: [0, 0, 0] for name in libraries}
    for case, answer in zip(CASES, quire_masks(options.quire, options.folder)):
        if not answer["compiled"]:
            raise SystemExit(answer["error"])
        kind = next(iter(case))
        print(case[kind].splitlines()[0] if kind != "json_schema" else json.dumps(case[kind]))
        for name, library in libraries.items():
            try:
                *counts, example = compare(case, answer, library, special, words)
            except ValueError as error:
                print(f"  {name}: refused: {error}")
                continue
            totals[name] = [a + b for a, b in zip(totals[name], counts)]
            print(f"  {name}: {counts[0]} masks, {counts[1]} differ, {counts[2]} in added tokens alone")
            if example:
                print(f"    {example}")
    for name, (places, differing, in_special) in totals.items():
        print(f"{name}: {places} masks, {differing} differ, {in_special} in added tokens alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
