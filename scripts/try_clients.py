#!/usr/bin/env python3
"""Points the usual clients and load tools at `quire serve` on loopback, and prints a table of what worked.

    scripts/try_clients.py                    # build/release; downloads the newest clients into build/clients
    scripts/try_clients.py --without-clients  # only the tools

The tools are Debian's packages apache2-utils, wrk, nghttp2-client and slowhttptest.

Each client asks for a definition, whole and as a stream; both must be the same text. Those that read answers and calls
into Pydantic's models do that, too. Exits with 1 if something failed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "e2e"))

# Of each client: its packages, and a program that sets `whole` and `streamed`, given `base_url`.
CLIENTS = {
    "openai": (["openai"], """
from openai import OpenAI
client = OpenAI(base_url=base_url, api_key="none")
ask = dict(model="lexicon", temperature=0, messages=[{"role": "user", "content": "define apple"}])
whole = client.chat.completions.create(**ask).choices[0].message.content
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**ask, stream=True))
"""),
    "litellm": (["litellm"], """
from litellm import completion
ask = dict(model="openai/lexicon", api_base=base_url, api_key="none", temperature=0,
           messages=[{"role": "user", "content": "define apple"}])
whole = completion(**ask).choices[0].message.content
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in completion(**ask, stream=True))
"""),
    "langchain-openai": (["langchain-openai"], """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="lexicon", base_url=base_url, api_key="none", temperature=0)
whole = model.invoke("define apple").content
streamed = "".join(chunk.content for chunk in model.stream("define apple"))
"""),
    "llama-index-llms-openai-like": (["llama-index-core", "llama-index-llms-openai-like"], """
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
model = OpenAILike(model="lexicon", api_base=base_url, api_key="none", is_chat_model=True, temperature=0)
ask = [ChatMessage(role="user", content="define apple")]
whole = model.chat(ask).message.content
streamed = "".join(chunk.delta or "" for chunk in model.stream_chat(ask))
"""),
}
# A class `Entry`, and what makes `entries` of it in the ways that a client has. Answers are bounded: a model that knows
# no JSON would go on until max_tokens, which clients take for an error.
ENTRY = """
from typing import Literal
from pydantic import BaseModel, ConfigDict, Field
class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str = Field(max_length=12)
    kind: Literal["noun", "verb"]
ask = dict(max_tokens=300, seed=1, messages=[{"role": "user", "content": "define apple"}])
"""
STRUCTURED = {
    "openai": (["openai"], """
import openai
parse = openai.OpenAI(base_url=base_url, api_key="none").chat.completions.parse
tools = dict(tools=[openai.pydantic_function_tool(Entry)], tool_choice="required", parallel_tool_calls=False)
entries = [parse(model="lexicon", response_format=Entry, **ask).choices[0].message.parsed,
           parse(model="lexicon", **tools, **ask).choices[0].message.tool_calls[0].function.parsed_arguments]
"""),
    "instructor": (["instructor"], """
import instructor, openai
client = openai.OpenAI(base_url=base_url, api_key="none")
entries = []
for mode in ["TOOLS", "TOOLS_STRICT", "FUNCTIONS", "JSON_SCHEMA", "JSON_O1"]:
    completions = instructor.from_openai(client, mode=instructor.Mode[mode]).chat.completions
    entries += [completions.create(model="lexicon", response_model=Entry, max_retries=0, **ask)]
    entries += [[*completions.create_partial(model="lexicon", response_model=Entry, max_retries=0, **ask)][-1]]
entries = [Entry.model_validate(entry.model_dump()) for entry in entries]
"""),
    "langchain-openai": (["langchain-openai"], """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="lexicon", base_url=base_url, api_key="none", max_tokens=300, seed=1)
structured = [model.with_structured_output(Entry, method=method) for method in ["json_schema", "function_calling"]]
entries = [each.invoke("define apple") for each in structured]
entries += [[*each.stream("define apple")][-1] for each in structured]
"""),
    "litellm": (["litellm"], """
from litellm import completion
ask.update(model="openai/lexicon", api_base=base_url, api_key="none", response_format=Entry)
chunks = completion(stream=True, **ask)
entries = [Entry.model_validate_json(text) for text in [
    completion(**ask).choices[0].message.content, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)]]
"""),
}
# Modes of instructor that leave the form of an answer to the model, with what a model writes that does as it is told:
# whether its template is Qwen3's, and the texts of its tokens.
LEFT_TO_THE_MODEL = {
    "JSON": (False, ['{"word": "apple", ', '"kind": "noun"}']),
    "MD_JSON": (True, ["```json\n", '{"word": "apple", ', '"kind": "noun"}', "\n```\n"]),
    "PARALLEL_TOOLS": (True, ['<tool_call>\n{"name": "Entry", ', '"arguments": {"word": "apple", "kind": "noun"}}',
                              "\n</tool_call>"]),
}
PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
MODE_BODY = """
import instructor, openai
from typing import Iterable
client = openai.OpenAI(base_url=base_url, api_key="none")
completions = instructor.from_openai(client, mode=instructor.Mode.{mode}).chat.completions
ask.update(model="lexicon", max_retries=0, temperature=0)
if "{mode}" == "PARALLEL_TOOLS":
    entries = [*completions.create(response_model=Iterable[Entry], **ask)]
else:
    entries = [completions.create(response_model=Entry, **ask),
               [*completions.create_partial(response_model=Entry, **ask)][-1],
               *completions.create_iterable(response_model=Entry, **ask)]
entries = [Entry.model_validate(entry.model_dump()) for entry in entries]
"""
STRUCTURED_PROGRAM = """
import importlib.metadata, json, sys
base_url = sys.argv[1]
{body}
assert entries and all(isinstance(entry, Entry) for entry in entries), entries
print(json.dumps([importlib.metadata.version(sys.argv[2]), f"{{len(entries)}} answers and calls read"]))
"""
PROGRAM = """
import importlib.metadata, json, sys
base_url = sys.argv[1]
{body}
assert whole and whole == streamed, (whole, streamed)
print(json.dumps([importlib.metadata.version(sys.argv[2]), f"chat and stream: {{whole[:40]!r}}..."]))
"""


def run(*command, timeout=600):
    return subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", errors="replace", check=False,
                          timeout=timeout)


def try_client(server, name, packages, program):
    """(version, what happened, whether it was right)"""
    venv = ROOT / "build" / "clients" / name
    if not (venv / "installed").exists():
        for command in (["python3", "-m", "venv", "--clear", venv],
                        [venv / "bin" / "pip", "install", "--quiet", "--only-binary", ":all:", *packages]):
            result = run(*command)
            if result.returncode != 0:
                return "", f"not installed: {result.stderr.strip().splitlines()[-1]}", False
        (venv / "installed").touch()
    result = run(venv / "bin" / "python3", "-c", program, server.address + "/v1", packages[-1])
    if result.returncode != 0:
        return "", result.stderr.strip()[-500:], False
    version, answer = json.loads(result.stdout.splitlines()[-1])
    return version, answer, True


def try_modes():
    """Rows of the modes of LEFT_TO_THE_MODEL."""
    from scripted_model import scripted_model
    from server_support import serving

    qwen3 = (ROOT / "tests" / "golden" / "chat" / "templates" / "qwen3.jinja").read_text()
    packages = STRUCTURED["instructor"][0]
    for mode, (is_qwen3, script) in LEFT_TO_THE_MODEL.items():
        with (scripted_model(qwen3 if is_qwen3 else PLAIN_TEMPLATE, script) as folder,
              serving(folder, "--no-access-log", "--tool-call-parser", "hermes", "--served-model-name",
                      "lexicon") as server):
            program = STRUCTURED_PROGRAM.format(body=ENTRY + MODE_BODY.format(mode=mode))
            yield "instructor", f"mode {mode}", *try_client(server, "instructor", packages, program)


def version_of(tool, output):
    """`output`: what it printed in a run; ab and slowhttptest name their version there."""
    if tool in ("wrk", "h2load"):
        output = run(tool, "--version").stdout
    found = re.search(r"(?:Version|version|nghttp2/|wrk(?: debian/)?) ?(\d[\d.]+)", output)
    return found[1] if found else "?"


def load_commands(address, body):
    """(what it asks for, command, pattern of what a good run prints)"""
    post = ["-p", body, "-T", "application/json"]
    slow = ["slowhttptest", "-u", f"{address}/v1/completions", "-c", "500", "-r", "200", "-l", "10", "-i", "2"]
    available = r"service available:.*YES"
    return [
        ("GET /health", ["ab", "-k", "-n", "5000", "-c", "16", f"{address}/health"], r"Failed requests:\s+0\n"),
        ("POST /tokenize", ["ab", "-k", "-l", "-n", "2000", "-c", "16", *post, f"{address}/tokenize"],
         r"Failed requests:\s+0\n(?!Non-2xx)"),
        ("POST /v1/completions", ["ab", "-l", "-n", "200", "-c", "16", *post, f"{address}/v1/completions"],
         r"Failed requests:\s+0\n(?!Non-2xx)"),
        ("GET /health", ["wrk", "-t", "1", "-c", "32", "-d", "3s", f"{address}/health"],
         r"(?s)\A(?!.*(Non-2xx|Socket errors)).*Requests/sec"),
        ("GET /v1/models", ["h2load", "--h1", "-n", "5000", "-c", "16", f"{address}/v1/models"],
         r"5000 succeeded, 0 failed, 0 errored"),
        ("slow headers", [*slow, "-H"], available),
        ("slow bodies", [*slow, "-B", "-s", "8192"], available),
        ("slow reading", ["slowhttptest", "-u", f"{address}/openapi.json", "-c", "500", "-r", "200", "-l", "10", "-X",
                          "-w", "10", "-y", "20", "-n", "2", "-z", "16", "-k", "3"], available),
    ]


def try_tool(command, pattern):
    if not shutil.which(command[0]):
        return "", "not installed", False
    result = run(*command)
    output = re.sub(r"\x1b\[[\d;]*m", "", result.stdout + result.stderr)
    version = version_of(command[0], output)
    if not re.search(pattern, output):
        return version, output.strip()[-500:], False
    rate = re.search(r"Requests per second:\s+(\S+)|Requests/sec:\s+(\S+)|([\d.]+) req/s", output)
    return version, f"{next(filter(None, rate.groups()))} requests/s" if rate else "available throughout", True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build" / "release" / "src" / "quire")
    parser.add_argument("--without-clients", action="store_true")
    arguments = parser.parse_args()
    os.environ["QUIRE_BINARY"] = str(arguments.binary)
    os.environ["QUIRE_SOURCE_DIR"] = str(ROOT)
    from server_support import serving

    rows = []
    with serving("--no-access-log", "--tool-call-parser", "hermes") as server, tempfile.NamedTemporaryFile("w", suffix=".json") as body:
        json.dump({"prompt": "define apple"}, body)
        body.flush()
        if not arguments.without_clients:
            rows += [(name, "chat", *try_client(server, name, packages, PROGRAM.format(body=body)))
                     for name, (packages, body) in CLIENTS.items()]
            rows += [(name, "structured output",
                      *try_client(server, name, packages, STRUCTURED_PROGRAM.format(body=ENTRY + body)))
                     for name, (packages, body) in STRUCTURED.items()]
            rows += try_modes()
        rows += [(command[0], what, *try_tool(command, pattern))
                 for what, command, pattern in load_commands(server.address, body.name)]
        urllib.request.urlopen(f"{server.address}/health").read()
    print("| client | asked for | version | result |\n|---|---|---|---|")
    for name, what, version, result, good in rows:
        print(f"| {name} | {what} | {version} | {'' if good else 'FAILED: '}{' '.join(result.split())} |")
    return 0 if all(good for *_, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
