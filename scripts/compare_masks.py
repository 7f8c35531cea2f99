#!/usr/bin/env python3
"""Compares quire's masks of tokens with llguidance's, token for token.

    scripts/compare_masks.py [--quire PROGRAM] FOLDER

FOLDER has a tokenizer.json (Qwen3's, say). Needs the packages llguidance and numpy from PyPI. PROGRAM
(default: build/release/src/quire) is asked with `quire grammar check --masks`.

At each token of each text, and behind it, both say which tokens may come and whether the text may end. Prints
for each constraint at how many places they differ, and the first tokens of the first place. Tokens that
llguidance takes for special ones, though they have text (<tool_call>), are counted apart: it
never allows them.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import llguidance
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
]


def quire_masks(program, folder):
    lines = "\n".join(map(json.dumps, CASES))
    arguments = [program, "grammar", "check", folder, "--json", "--masks"]
    result = subprocess.run(arguments, input=lines, capture_output=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def bits_of(mask, count):
    return numpy.unpackbits(numpy.frombuffer(mask, dtype=numpy.uint8), bitorder="little")[:count]


def other_grammar(case):
    if "regex" in case:
        return llguidance.grammar_from("regex", case["regex"])
    return llguidance.grammar_from("lark", llguidance.gbnf_to_lark.any_to_lark(case["grammar"]))


def compare(case, answer, tokenizer, special):
    """The places, those that differ, those that differ in special tokens only, and an example."""
    places = differing = differing_in_special = 0
    example = None
    for masked in answer["masks"]:
        matcher = llguidance.LLMatcher(tokenizer, other_grammar(case))
        if matcher.is_error():
            raise SystemExit(f"llguidance: {matcher.get_error()}")
        for i, mask in enumerate(masked["allowed"]):
            count = tokenizer.vocab_size
            ours = bits_of(bytes.fromhex(mask), count)
            theirs = bits_of(matcher.compute_bitmask(), len(ours)).copy()
            theirs[tokenizer.eos_token] = 0
            differences = numpy.nonzero(ours != theirs)[0]
            plain = [token for token in differences if token not in special]
            places += 1
            differing += bool(plain)
            differing_in_special += bool(len(differences) and not plain)
            if plain and example is None:
                names = [tokenizer.decode_str([int(token)]) for token in plain[:5]]
                side = "quire" if ours[plain[0]] else "llguidance"
                example = f"{len(plain)} at token {i}: {names}, allowed by {side}"
            if i < len(masked["token_ids"]):
                matcher.consume_token(masked["token_ids"][i])
    return places, differing, differing_in_special, example


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quire", default="build/release/src/quire")
    options = parser.parse_args()
    text = (options.folder / "tokenizer.json").read_text()
    tokenizer = llguidance.LLTokenizer(text)
    special = {token["id"] for token in json.loads(text)["added_tokens"]}
    for case, answer in zip(CASES, quire_masks(options.quire, options.folder)):
        if not answer["compiled"]:
            raise SystemExit(answer["error"])
        places, differing, differing_in_special, example = compare(case, answer, tokenizer, special)
        name = case.get("regex") or case["grammar"].splitlines()[0]
        print(f"{name}: {places} masks, {differing} differ, {differing_in_special} in added tokens alone")
        if example:
            print(f"  {example}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
