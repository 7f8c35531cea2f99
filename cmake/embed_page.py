#!/usr/bin/env python3
"""Packs the web page and its JavaScript libraries for src/web/assets.cc.

    cmake/embed_page.py --page FOLDER --out FOLDER --library NAME=FILE... --copyright PACKAGE=FILE...

Writes page.bin, every file as it is and compressed, one after the other, and page_data.cc, the table
of what is where. The page's index.html is served at "/", the rest below "/page/".
"""

import argparse
import gzip
import hashlib
import pathlib
import re

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# What people ask models for; all 185 languages would be two thirds of the page.
LANGUAGES = """
    bash c cmake cpp cs css d dart diff dockerfile elixir elm erlang fortran go gradle graphql haskell
    http ini java javascript json julia kotlin latex less lisp lua makefile markdown matlab nginx nix
    objectivec ocaml perl php plaintext powershell prolog properties protobuf python r ruby rust scala
    scheme scss shell sql swift tcl tex typescript verilog vhdl vim x86asm xml yaml
""".split()
REGISTER = 'hljs.registerLanguage("'

HEAD = """\
// Made by cmake/embed_page.py.
#include "web/page_data.h"

asm(".pushsection .rodata.quire_page,\\"a\\"\\n"
    ".balign 16\\n"
    ".hidden quire_web_page\\n"
    ".globl quire_web_page\\n"
    "quire_web_page:\\n"
    ".incbin \\"{binary}\\"\\n"
    ".popsection\\n");

namespace quire::web::web_internal {{

const PageFile kPageFiles[] = {{
"""
TAIL = """\
}};
const std::size_t kNumPageFiles = {count};

}}  // namespace quire::web::web_internal
"""


def highlight_subset(source):
    """highlight.js with LANGUAGES alone, or whole where it is not one statement a language."""
    core, *languages = source.split(REGISTER)
    if not languages or not all(text.rstrip().endswith("});") for text in languages):
        return source
    kept = [text for text in languages if text[: text.index('"')] in LANGUAGES]
    return core + "".join(REGISTER + text for text in kept)


def without_source_map(source):
    """Browsers' tools would ask for a map that is not served."""
    return re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", source)


def collect(arguments):
    """(path, content type, bytes) of everything that is served."""
    for file in sorted(pathlib.Path(arguments.page).iterdir()):
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        yield path, CONTENT_TYPES[file.suffix], file.read_bytes()
    for name, file in arguments.library:
        source = without_source_map(pathlib.Path(file).read_text(encoding="utf-8"))
        if name == "highlight.js":
            source = highlight_subset(source)
        yield f"/page/lib/{name}", CONTENT_TYPES[".js"], source.encode()
    notices = [f"{package}\n{'=' * len(package)}\n\n{pathlib.Path(file).read_text(encoding='utf-8')}"
               for package, file in arguments.copyright]
    yield "/page/lib/licences.txt", CONTENT_TYPES[".txt"], "\n\n".join(notices).encode()


def pair(text):
    name, separator, file = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--library", type=pair, action="append", default=[])
    parser.add_argument("--copyright", type=pair, action="append", default=[])
    arguments = parser.parse_args()

    out = pathlib.Path(arguments.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    binary = bytearray()
    rows = []
    for path, content_type, body in sorted(collect(arguments)):
        packed = gzip.compress(body, compresslevel=9, mtime=0)
        tag = hashlib.sha256(body).hexdigest()[:16]
        rows.append(f'    {{"{path}", "{content_type}", "W/\\"{tag}\\"", '
                    f"{len(binary)}, {len(body)}, {len(packed)}}},\n")
        binary += body + packed
    (out / "page.bin").write_bytes(binary)
    (out / "page_data.cc").write_text(
        HEAD.format(binary=out / "page.bin") + "".join(rows) + TAIL.format(count=len(rows)),
        encoding="utf-8")


if __name__ == "__main__":
    main()
