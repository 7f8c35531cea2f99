#!/usr/bin/env python3
"""Checks which way the sources look: each folder of src/ may include only the folders that the
table in docs/architecture.md allows.

    scripts/check_includes.py [ROOT]

Prints each include that points the wrong way and exits with 1 if there is one. The table's rows are
`| folder | may include |`; anything may include its own folder and the plain types of include/quire.
A file is in the innermost folder that has a row. `x` (in tests) is only for *_test.cc.

Prints, too, each constant of a .cc file with the name of one in include/quire: where several files are
compiled as one, it would stand for the public one in all of them.
"""

import pathlib
import re
import sys

TABLE_HEAD = re.compile(r"^\|\s*folder\s*\|\s*may include\s*\|")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Of the public headers these hold plain data and may be included anywhere; the others are the API.
PLAIN_HEADERS = {
    "quire/benchmark.h",
    "quire/engine_config.h",
    "quire/engine_limits.h",
    "quire/error.h",
    "quire/plan.h",
    "quire/request_output.h",
    "quire/sampling_limits.h",
    "quire/sampling_params.h",
    "quire/speculative_config.h",
    "quire/structured_output.h",
    "quire/text_span.h",
    "quire/tune.h",
    "quire/version.h",
}
# Public headers that a lower folder implements, and that those above it include.
IMPLEMENTED_IN = {
    "quire/bundled_model.h": "hub",
    "quire/tokenizer.h": "tokenizer",
    "quire/chat_input.h": "chat",
    "quire/chat_template.h": "chat",
}
CUDA_FILE = re.compile(r"(cuda\w*\.(cu|cc|h)|\.cuh)$")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nccl)[\w./]*\.h$")


def read_table(path):
    """What the folders of each folder's row are, from the page's table: {folder: {allowed: in tests only}}."""
    allowed = {}
    in_table = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if TABLE_HEAD.match(line):
            in_table = True
        elif in_table and not line.startswith("|"):
            break
        elif in_table and not set(line) <= set("|- "):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            names = lambda cell: re.findall(r"`([^`]+)`", cell)
            may = {name: bool(note) for name, note in re.findall(r"`([^`]+)`( \(in tests\))?", cells[1])}
            for folder in names(cells[0]):
                allowed[folder] = may
    if not allowed:
        sys.exit(f"check_includes: {path} has no table that opens with '| folder | may include |'")
    return allowed


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def folder_of(path, allowed):
    """The innermost folder of a path below src/ that has a row, or None."""
    for folder in map(str, path.parents):
        if folder in allowed:
            return folder
    return None


def check_project_include(folder, target, allowed, root, is_test):
    """What is wrong with `folder` including `target`, or None."""
    first = target.split("/")[0]
    if first == "quire":
        if not (root / "include" / target).is_file():
            return "there is no such public header"
        owner = IMPLEMENTED_IN.get(target)
        if target in PLAIN_HEADERS or "include/quire" in allowed[folder] or owner == folder:
            return None
        if owner is not None and owner in allowed[folder]:
            return None
        return f"{folder} may not include the API"
    if not (root / "src" / target).is_file():
        return "includes are written from src/ or include/, and there is no such file there"
    included = folder_of(pathlib.PurePath(target), allowed)
    if included == folder:
        return None
    if included not in allowed[folder] or (allowed[folder][included] and not is_test):
        return f"{folder} may not include {included}"
    return None


def check_file(path, folder, allowed, root):
    for number, quoted, target in includes(path):
        problem = None
        if quoted:
            problem = check_project_include(folder, target, allowed, root, path.stem.endswith("_test"))
        elif CUDA_HEADER.match(target) and not CUDA_FILE.search(path.name):
            problem = "CUDA headers belong in *_cuda.cu and *_cuda.h files"
        if problem:
            yield f"{path.relative_to(root)}:{number}: {target}: {problem}"


def constants(path):
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^(?:inline )?constexpr [^=;(){}]*?\b(k[A-Z]\w*)", text, re.MULTILINE)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    allowed = read_table(root / "docs" / "architecture.md")
    public_constants = {name for path in (root / "include").rglob("*.h") for name in constants(path)}
    problems = []
    count = 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        folder = folder_of(pathlib.PurePath(path.relative_to(root / "src")), allowed)
        count += 1
        if folder is None:
            problems.append(f"{path.relative_to(root)}: docs/architecture.md's table has no row for its folder")
            continue
        problems.extend(check_file(path, folder, allowed, root))
        hidden = public_constants.intersection(constants(path)) if path.suffix == ".cc" else ()
        problems.extend(f"{path.relative_to(root)}: {name} hides the constant of include/quire" for name in sorted(hidden))
    for path in sorted((root / "include").rglob("*.h")):
        count += 1
        for number, quoted, target in includes(path):
            if quoted and not (target.startswith("quire/") and (root / "include" / target).is_file()):
                problems.append(f"{path.relative_to(root)}:{number}: {target}: a public header includes public headers only")
    print("\n".join(problems) if problems else f"{count} files include only what they may")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
