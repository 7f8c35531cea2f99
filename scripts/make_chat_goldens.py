#!/usr/bin/env python3
"""Makes the goldens of src/chat/ with Hugging Face transformers and Jinja2.

    python3 -m venv venv && venv/bin/pip install transformers jinja2
    venv/bin/python scripts/make_chat_goldens.py

Writes tests/golden/chat/chats.json (whole templates through apply_chat_template) and
tests/golden/chat/snippets.json (small templates in transformers' Jinja environment). A golden without
"text" is one where Jinja raises.
"""
import datetime
import json
import pathlib

import tokenizers
import transformers
from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "chat"
NOW = datetime.datetime(2025, 3, 9, 8, 5, 7)  # a Sunday; one-digit day, month and hour


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second)


chat_template_utils.datetime = FixedClock

SPECIAL_TOKENS = {
    "qwen3": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "qwen2_5": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "llama3.2": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "llama2": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "mistral_v0_1": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "mistral_v0_3": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "mistral_nemo": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "chatml": {"bos_token": "<s>", "eos_token": "<|im_end|>"},
}


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


def user(content):
    return message("user", content)


def assistant(content, **fields):
    return message("assistant", content, **fields)


def call(name, arguments, id="abcde1234"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def tool(content, id="abcde1234", name="get_weather"):
    return message("tool", content, tool_call_id=id, name=name)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> in a \"city\" & its surroundings, like 'Zürich'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. 東京 🌧"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14.5, "default": None},
                "unit": {"enum": ["celsius", "fahrenheit"], "additionalProperties": False},
            },
            "required": ["city"],
        },
    },
}
CALCULATOR = {
    "type": "function",
    "function": {"name": "calc", "description": "Adds", "parameters": {}, "return": {"type": "number"}},
}
SYSTEM = message("system", "You are terse.\n")
CONVERSATION = [user("Hello!"), assistant("Hi there."), user("And now?")]
THINKING = "<think>\nLet me see.\n\nYes.\n</think>\n\nThe answer is 4."

CHATS = {
    "one": [user("What is 2+2?")],
    "system": [SYSTEM, user("What is 2+2?")],
    "turns": CONVERSATION,
    "system_turns": [SYSTEM, *CONVERSATION],
    "ends_with_assistant": CONVERSATION[:2],
    "long": [SYSTEM] + [m for i in range(6) for m in (user(f"q{i}"), assistant(f" a{i} \n"))] + [user("last")],
    "unicode": [user("Grüße, 世界! 👩‍👩‍👧 \u200f مرحبا \u00a0"), assistant("“ok” ✓\t\r\n"), user("ñ\u0301\u2028x")],
    "blanks": [user("  \n padded \t "), assistant("\n\nx\n\n"), user("\n")],
    "empty_content": [user("")],
    "special_text": [user("<|im_end|> {{ 7 * 7 }} {% raw %} <s>[INST] \\n \"quoted\" 'single'")],
    "tool_call": [user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 3})])],
    "tool_round": [
        user("Weather in Tokyo?"),
        assistant("", tool_calls=[call("get_weather", {"city": "東京", "ratio": 0.1, "ok": True, "n": None})]),
        tool('{"temp": 21.5}'),
        assistant("21.5 degrees."),
        user("Thanks"),
    ],
    "tool_round_system": [
        SYSTEM,
        user("Weather?"),
        assistant("I look.", tool_calls=[call("get_weather", {"city": "A"})]),
        tool("rain"),
    ],
    "tool_null_content": [
        user("Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "A"})]},
        tool("rain"),
    ],
    "two_calls": [
        user("Both"),
        assistant("", tool_calls=[call("get_weather", {"city": "A"}), call("calc", {"x": [1, 2, {}]}, "zzzzz9876")]),
        tool("rain"),
        tool("3", "zzzzz9876", "calc"),
        assistant("Rain, 3."),
        user("ok"),
    ],
    "string_arguments": [user("x"), assistant("", tool_calls=[call("calc", '{"x": 1}')]), tool("1")],
    "bad_call_id": [user("x"), assistant("", tool_calls=[call("calc", {}, "short")]), tool("1", "short")],
    "tool_json_content": [user("x"), assistant("", tool_calls=[call("calc", {})]), tool({"content": 3, "b": [1.0]})],
    "think_inline": [user("2+2?"), assistant(THINKING), user("Sure?")],
    "think_inline_last": [user("2+2?"), assistant(THINKING)],
    "think_field": [user("2+2?"), assistant("4", reasoning_content="\nadd\n"), user("Sure?")],
    "think_field_last": [user("2+2?"), assistant("4", reasoning_content="\nadd\n")],
    "think_alias": [user("2+2?"), assistant("4", reasoning="added up")],
    "think_tools": [
        user("Weather?"),
        assistant("", reasoning_content="need the tool", tool_calls=[call("get_weather", {"city": "A"})]),
        tool("rain"),
        assistant("Rain.", reasoning_content="it says rain"),
    ],
    "fake_tool_response": [user("a"), assistant("b"), user("<tool_response>\nfake\n</tool_response>")],
    "two_users": [user("a"), user("b")],
    "assistant_first": [assistant("a"), user("b")],
    "system_late": [user("a"), message("system", "late"), user("b")],
    "unknown_role": [user("a"), message("wizard", "b")],
    "ipython": [user("a"), assistant("b"), message("ipython", ["x", 1, None])],
    "no_content": [{"role": "user"}],
    "parts": [user([{"type": "text", "text": "part"}])],
}

# For each template: names of chats, tools, generation prompt or not, variables.
VARIANTS = [
    {},
    {"add_generation_prompt": False},
    {"tools": [WEATHER, CALCULATOR]},
    {"tools": [CALCULATOR], "add_generation_prompt": False},
]
WITH_TOOLS = {"qwen3", "qwen2_5", "llama3.2", "mistral_v0_3", "mistral_nemo"}
MORE = {
    "qwen3": [
        {"kwargs": {"enable_thinking": False}},
        {"kwargs": {"enable_thinking": True}},
        {"kwargs": {"enable_thinking": False}, "tools": [WEATHER]},
        {"tools": []},
    ],
    "llama3.2": [
        {"kwargs": {"date_string": "26 Jul 2024"}},
        {"tools": [WEATHER], "kwargs": {"tools_in_user_message": False}},
        {"kwargs": {"custom_tools": [CALCULATOR]}},
        {"tools": []},
        {"kwargs": {"bos_token": "<other>"}},
    ],
}


def render_chat(name, variant):
    source = (FOLDER / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=source, **SPECIAL_TOKENS[name]
    )
    return tokenizer.apply_chat_template(
        CHATS[variant["chat"]],
        tools=variant.get("tools"),
        tokenize=False,
        add_generation_prompt=variant.get("add_generation_prompt", True),
        **variant.get("kwargs", {}),
    )


def make_chats():
    cases = []
    for name in SPECIAL_TOKENS:
        variants = [v for v in VARIANTS if "tools" not in v or name in WITH_TOOLS]
        for variant in variants + MORE.get(name, []):
            for chat in CHATS:
                case = {"template": name, "chat": chat, **variant}
                try:
                    case["text"] = render_chat(name, case)
                except Exception as error:
                    # What the template itself says comes through; Python's own messages do not.
                    if type(error).__name__ == "TemplateError":
                        case["error"] = str(error)
                cases.append(case)
    return {"special_tokens": SPECIAL_TOKENS, "chats": CHATS, "cases": cases}


CONTEXT = {
    "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 1e20, "tiny": 1e-7, "t": True, "no": False, "nothing": None,
    "s": "Hello, World", "u": "Grüße ÄÖ 世界 👩‍👩", "blank": " \n pad\t ", "empty": "",
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "mixed": [1, "x", None, True, 2.5, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": "x"}, "nested": {"x": {"y": [10, {"z": "deep"}]}, "items": "shadowed", "list": []},
    "rows": [
        {"name": "x", "age": 30, "tags": ["p"], "o": {"k": 1}},
        {"name": "Y", "age": 20, "tags": []},
        {"name": "z", "age": 20, "o": {"k": 0}},
    ],
    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
}

EXPRESSIONS = FOLDER / "snippets.txt"


def make_snippets():
    cases = []
    for source in read_snippets():
        try:
            text = chat_template_utils._compile_jinja_template(source).render(**json.loads(json.dumps(CONTEXT)))
            cases.append([source, text])
        except Exception:
            cases.append([source, None])
    return {"context": CONTEXT, "cases": cases}


def read_snippets():
    """One a line: an expression, or a template where the line starts with "T "; ⏎ is a newline and ⇥ a tab."""
    snippets = []
    for line in EXPRESSIONS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("# "):
            continue
        if line.startswith("T "):
            snippets.append(line[2:].replace("⏎", "\n").replace("⇥", "\t"))
        else:
            snippets.append("{{ " + line + " }}")
    return snippets


def write(name, data):
    path = FOLDER / name
    path.write_text(json.dumps(data, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")
    errors = sum(1 for case in data["cases"] if (case[1] is None if isinstance(case, list) else "text" not in case))
    print(f"{path}: {len(data['cases'])} cases, {errors} of them errors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    print("transformers", transformers.__version__, "jinja2", chat_template_utils.jinja2.__version__)
    write("chats.json", make_chats())
    write("snippets.json", make_snippets())
