#!/usr/bin/env python3
"""Measures what `quire grammar check` compiles, how fast, and whether it accepts what it should.

    scripts/measure_grammar.py [--quire PROGRAM] [--model MODEL] [--list] PATH...

A PATH is a file of JSON lines {"name", "schema", "tests": [{"data", "valid"}]}, which may be packed with xz,
as JSONSchemaBench's cases are; or a file or folder of JSON-Schema-Test-Suite (tests/draft7,
tests/draft2020-12), where "format" is an annotation outside of optional/format and format-assertion.json.
PROGRAM (default: build/release/src/quire) is given the arguments of `quire grammar check --json`.

Prints the schemas that compile, instances that are accepted though invalid and rejected though valid, the
time of compiling, and the refusals by keyword. With MODEL, whose tokenizer is read, also the instances that
can be generated, and what the masks of tokens take: the mean over schemas, each with its own mean, and of the
largest of each schema the 99th in a hundred and the most. --list names each wrong answer and each refusal.
"""

import argparse
import collections
import json
import lzma
import pathlib
import re
import subprocess
import sys

KEYWORD = re.compile(r"^(#\S*)?: ")


def cases_of_lines(path):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            yield case["name"], case["schema"], [(test["data"], test["valid"]) for test in case["tests"]]


def cases_of_suite(path):
    for group in json.loads(path.read_text(encoding="utf-8")):
        schema = group["schema"]
        for number in ("4", "6", "7"):
            # The files of these drafts leave it to their folder to say which it is.
            if f"draft{number}" in path.parts and isinstance(schema, dict):
                schema = {"$schema": f"http://json-schema.org/draft-0{number}/schema#", **schema}
        tests = [(test["data"], test["valid"]) for test in group["tests"]]
        yield f"{path.parent.name}/{path.stem}: {group['description']}", schema, tests


def read_cases(paths):
    """[(name, schema, [(data, valid)], whether formats are enforced)]."""
    cases = []
    for path in map(pathlib.Path, paths):
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in {".jsonl", ".xz"}:
                cases += [(*case, True) for case in cases_of_lines(file)]
                continue
            formats = "format" in file.parent.name or file.stem == "format-assertion"
            cases += [(*case, formats) for case in cases_of_suite(file)]
    return cases


def check(program, cases, formats):
    lines = [json.dumps({"json_schema": schema, "texts": [json.dumps(data) for data, _ in tests]})
             for _, schema, tests, _ in cases]
    arguments = [] if formats else ["--no-formats"]
    result = subprocess.run([*program, *arguments], input="\n".join(lines) + "\n", capture_output=True,
                            text=True, check=False)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    if len(answers) != len(cases):
        sys.exit(f"{' '.join(program)} answered {len(answers)} of {len(cases)} lines: {result.stderr[-2000:]}")
    return answers


def keyword_of(error):
    """What was refused: the last word of the error's JSON pointer, or the error itself."""
    match = KEYWORD.match(error)
    if not match:
        return error[:60]
    words = [word for word in match.group(0).rstrip(": ").split("/") if not word.isdigit()]
    return f"{words[-1]}: {error[match.end():][:70]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/src/quire")
    parser.add_argument("--model")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    program = [options.quire, "grammar", "check", *([options.model] if options.model else []), "--json"]

    totals = collections.Counter()
    refusals = collections.Counter()
    times = []
    masks = []
    for formats in (True, False):
        cases = [case for case in read_cases(options.paths) if case[3] == formats]
        for (name, _, tests, _), answer in zip(cases, check(program, cases, formats) if cases else []):
            totals["schemas"] += 1
            if not answer["compiled"]:
                refusals[keyword_of(answer["error"])] += 1
                if options.list:
                    print(f"refused: {name}: {answer['error']}")
                continue
            totals["compiled"] += 1
            times.append(answer["compile_ms"])
            if options.model:
                totals["generated"] += sum(answer["generated"])
                masks += [answer["mask_us"]] if tests else []
            for (data, valid), accepted in zip(tests, answer["accepted"]):
                totals["valid" if valid else "invalid"] += 1
                if accepted == valid:
                    continue
                wrong = "wrong rejections" if valid else "wrong acceptances"
                totals[wrong] += 1
                if options.list:
                    print(f"{wrong}: {name}: {json.dumps(data, ensure_ascii=False)[:200]}")
    print(f"compiled            {totals['compiled']:,} of {totals['schemas']:,} schemas, "
          f"{100 * totals['compiled'] / max(1, totals['schemas']):.1f} %")
    print(f"wrong acceptances   {totals['wrong acceptances']:,} of {totals['invalid']:,} invalid instances")
    print(f"wrong rejections    {totals['wrong rejections']:,} of {totals['valid']:,} valid instances")
    if times:
        times.sort()
        print(f"compiling, ms       mean {sum(times) / len(times):.2f}, median {times[len(times) // 2]:.2f}, "
              f"p99 {times[min(len(times) - 1, len(times) * 99 // 100)]:.1f}, most {times[-1]:.1f}")
    if masks:
        most = sorted(mask["max"] for mask in masks)
        print(f"generated           {totals['generated']:,} of {totals['valid']:,} valid instances")
        print(f"masks, us           mean {sum(mask['mean'] for mask in masks) / len(masks):.1f}, largest of a schema: "
              f"p99 {most[min(len(most) - 1, len(most) * 99 // 100)]:.0f}, most {most[-1]:.0f}")
    for keyword, count in refusals.most_common(40):
        print(f"refused {count:5,} x   {keyword}")


if __name__ == "__main__":
    main()
