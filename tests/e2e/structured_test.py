"""Structured output through the real binary: whatever the model would write, what it writes follows the constraint."""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from python_packages import use_test_packages  # noqa: E402

use_test_packages()

import jsonschema  # noqa: E402

from random_schemas import Findings, try_schemas  # noqa: E402
from server_support import serving  # noqa: E402
from support import SOURCE_DIR, CliTest, model_copy, run  # noqa: E402

TEMPLATES = SOURCE_DIR / "tests" / "golden" / "chat" / "templates"

# Bounded, so that a model that knows no JSON comes to an end.
WORD = {"type": "string", "maxLength": 12}
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["word", "kind", "senses"],
          "properties": {"word": WORD, "kind": {"enum": ["noun", "verb"]},
                         "senses": {"type": "array", "maxItems": 2, "items": WORD}}}
GRAMMAR = 'root ::= "(" root ")" | [a-c]{1,3}'
# Each way to ask for a constraint, and whether an answer follows it.
CONSTRAINTS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "entry", "schema": SCHEMA}}},
                    lambda text: follows(text, SCHEMA)),
    "json_object": ({"response_format": {"type": "json_object"}}, lambda text: follows(text, {"type": "object"})),
    "json": ({"structured_outputs": {"json": SCHEMA}}, lambda text: follows(text, SCHEMA)),
    "json as text": ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, lambda text: follows(text, SCHEMA)),
    "regex": ({"structured_outputs": {"regex": "[a-f]{2,6}-[0-9]{3}"}},
              lambda text: re.fullmatch("[a-f]{2,6}-[0-9]{3}", text)),
    "choice": ({"structured_outputs": {"choice": ["noun", "verb", "neither"]}},
               lambda text: text in ["noun", "verb", "neither"]),
    "grammar": ({"structured_outputs": {"grammar": GRAMMAR}}, lambda text: re.fullmatch(r"\(*[a-c]{1,3}\)*", text)),
    "grammar of the W3C": ({"structured_outputs": {"grammar": "list ::= [#x61-#x63] (',' #x64)? /* two */"}},
                           lambda text: re.fullmatch("[a-c](,d)?", text)),
    "grammar of ISO": ({"structured_outputs": {"grammar": 'list = 2 * "a", [ "b" ];'}},
                       lambda text: re.fullmatch("aab?", text)),
    "any object": ({"structured_outputs": {"json_object": True}}, lambda text: follows(text, {"type": "object"})),
    "guided_json": ({"guided_json": SCHEMA}, lambda text: follows(text, SCHEMA)),
    "json_schema of llama.cpp": ({"json_schema": SCHEMA}, lambda text: follows(text, SCHEMA)),
    "ebnf of SGLang": ({"ebnf": GRAMMAR}, lambda text: re.fullmatch(r"\(*[a-c]{1,3}\)*", text)),
    "guided_regex": ({"guided_regex": "[ab]{4}"}, lambda text: re.fullmatch("[ab]{4}", text)),
    "guided_choice": ({"guided_choice": ["yes", "no"]}, lambda text: text in ["yes", "no"]),
    "guided_grammar": ({"guided_grammar": GRAMMAR}, lambda text: re.fullmatch(r"\(*[a-c]{1,3}\)*", text)),
}


def follows(text, schema):
    jsonschema.validate(json.loads(text), schema)
    return True


def tool(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


CITY = {"type": "object", "additionalProperties": False, "required": ["city", "days"],
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1,
                                                                             "maximum": 9}}}
TOOLS = [tool("get_weather", CITY), {"type": "function", "function": {"name": "get_time"}}]
SCHEMAS = {"get_weather": CITY, "get_time": {"type": "object", "maxProperties": 0}}


def without_strings(text):
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


class Asks(CliTest):
    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serving("--no-access-log", *cls.arguments()))

    @classmethod
    def arguments(cls):
        return cls.ARGUMENTS

    def chat(self, **fields):
        body = {"messages": [{"role": "user", "content": "define apple"}], "max_tokens": 200, "seed": 1, **fields}
        status, _, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        return answer["choices"]

    def refused(self, path="/v1/chat/completions", **fields):
        """(param, message)"""
        body = {"messages": [{"role": "user", "content": "define apple"}], "prompt": "apple", **fields}
        del body["prompt" if path.endswith("chat/completions") else "messages"]
        status, _, answer = self.server.post(path, body)
        self.assertEqual(status, 400, answer)
        return answer["error"]["param"], answer["error"]["message"]


class Answers(Asks):
    def test_numbers_keep_their_digits(self):
        number = 2 ** 64 + 1  # which no double is
        for fields in [{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": number}}}},
                       {"structured_outputs": {"json": {"const": number}}}, {"guided_json": {"const": number}}]:
            choice, = self.chat(**fields)
            self.assertEqual(json.loads(choice["message"]["content"]), number, fields)

    def test_every_field(self):
        for name, (fields, is_right) in CONSTRAINTS.items():
            for temperature in [0, 1.5]:
                with self.subTest(name, temperature=temperature):
                    choice, = self.chat(**fields, temperature=temperature)
                    self.assertTrue(is_right(choice["message"]["content"]), choice)

    def test_streams_say_the_same(self):
        for name, (fields, _) in CONSTRAINTS.items():
            with self.subTest(name):
                body = {"messages": [{"role": "user", "content": "define apple"}], "max_tokens": 200,
                        "temperature": 0, **fields}
                events = self.server.stream("/v1/chat/completions", body)
                text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
                self.assertEqual(text, self.chat(**fields, temperature=0)[0]["message"]["content"])

    def test_several_outputs(self):
        choices = self.chat(**CONSTRAINTS["json_schema"][0], n=4, temperature=2)
        self.assertEqual(len(choices), 4)
        for choice in choices:
            self.assertTrue(follows(choice["message"]["content"], SCHEMA), choice)

    def test_completions(self):
        for name, (fields, is_right) in CONSTRAINTS.items():
            with self.subTest(name):
                status, _, answer = self.server.post(
                    "/v1/completions", {"prompt": ["apple", "pear"], "max_tokens": 200, "seed": 1, **fields})
                self.assertEqual(status, 200, answer)
                for choice in answer["choices"]:
                    self.assertTrue(is_right(choice["text"]), choice)

    def test_an_answer_is_whole_however_few_tokens_it_has(self):
        whole = 0
        for max_tokens in range(20, 60, 3):
            choice, = self.chat(**CONSTRAINTS["json_object"][0], max_tokens=max_tokens, temperature=1)
            self.assertTrue(follows(choice["message"]["content"], {"type": "object"}), choice)
            if choice.get("steered_to_end"):
                self.assertEqual(choice["finish_reason"], "length")
            else:
                self.assertEqual(choice["finish_reason"], "stop")
                whole += 1
        self.assertLess(whole, 14)

    def test_a_request_without_white_space(self):
        for seed in range(4):
            fields = {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}, "temperature": 2}
            text = self.chat(**fields, seed=seed)[0]["message"]["content"]
            self.assertTrue(follows(text, SCHEMA))
            self.assertNotRegex(without_strings(text), r"\s")

    def test_structural_tags(self):
        tag = {"type": "structural_tag", "triggers": ["apple"],
               "structures": [{"begin": "apple ", "schema": {"type": "integer", "minimum": 10, "maximum": 99},
                               "end": " apples"}]}
        for fields in [{"response_format": tag}, {"structured_outputs": {"structural_tag": json.dumps(tag)}}]:
            choice, = self.chat(**fields, temperature=0)
            found = re.match("apple (.*?) apples", choice["message"]["content"])
            self.assertTrue(follows(found[1], tag["structures"][0]["schema"]), choice)

    def test_two_at_once_are_refused(self):
        param, message = self.refused(**CONSTRAINTS["json_schema"][0], **CONSTRAINTS["regex"][0])
        self.assertEqual(param, "structured_outputs.regex")
        self.assertIn("response_format.json_schema.schema and structured_outputs.regex", message)

    def test_what_cannot_be_enforced_is_refused(self):
        schema = {"properties": {"a": {"pattern": "(x)\\1"}}}
        for param, says, fields in [
                ("response_format.json_schema.schema", "#/properties/a/pattern",
                 {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
                ("structured_outputs.json", "#/properties/a/pattern", {"structured_outputs": {"json": schema}}),
                ("guided_json", "$ref", {"guided_json": {"$ref": "http://example.com/schema"}}),
                ("structured_outputs.regex", "(", {"structured_outputs": {"regex": "("}}),
                ("guided_grammar", "", {"guided_grammar": "root ::= missing"}),
                ("guided_json", "", {"guided_json": {"type": "string", "enum": [1]}})]:
            for path in ["/v1/chat/completions", "/v1/completions"]:
                with self.subTest(param, path=path):
                    found, message = self.refused(path, **fields)
                    self.assertEqual(found, param)
                    self.assertTrue(message.startswith(f"{param} cannot be enforced: "), message)
                    self.assertIn(says, message)

    def test_a_limit_below_the_shortest_answer_is_refused(self):
        param, message = self.refused(**CONSTRAINTS["json_schema"][0], max_tokens=3)
        self.assertEqual(param, "max_tokens")
        self.assertRegex(message, r"^An answer takes at least \d+ tokens, but max_tokens leaves room for 3\.$")

    def test_others_go_on(self):
        free = {"temperature": 0, "max_tokens": 30}
        before = self.chat(**free)
        self.refused(guided_regex="(a{1000}){1000}")
        self.assertEqual(self.chat(**free), before)


class RandomSchemas(Asks):
    """A part of what scripts/try_random_schemas.py asks for; QUIRE_RANDOM_SCHEMAS says how many."""

    COUNT = int(os.environ.get("QUIRE_RANDOM_SCHEMAS", 30 if os.environ.get("QUIRE_SANITIZE") else 250))

    def test_every_answer_follows_its_schema(self):
        findings = try_schemas(self.server, range(self.COUNT))
        self.assertEqual(findings.faults, [])
        # Most can be enforced, and many are cut.
        self.assertGreater(findings.counts["answers"], self.COUNT * 0.7)
        self.assertGreater(findings.counts["steered to an end"], self.COUNT * 0.1)

    def test_wrong_answers_are_found(self):
        findings = Findings()
        usage = {"completion_tokens": 1}
        for text in ["", "{", '{"a": NaN}', '{"a": 1, "a": 2}']:
            findings.add(0, 200, {"choices": [{"text": text}], "usage": usage})
        findings.add(0, 500, {"error": {"message": "no"}})
        self.assertEqual(len(findings.faults), 5)


class Tools(Asks):
    """A model that knows nothing of tools calls them as it should."""

    TEMPLATE = "qwen2_5"

    @classmethod
    def arguments(cls):
        return [cls.enterClassContext(
            model_copy(chat_template__jinja=(TEMPLATES / f"{cls.TEMPLATE}.jinja").read_text()))]

    def check_calls(self, choice, names=tuple(SCHEMAS)):
        calls = choice["message"]["tool_calls"]
        self.assertGreater(len(calls), 0)
        for call in calls:
            self.assertIn(call["function"]["name"], names)
            self.assertTrue(follows(call["function"]["arguments"], SCHEMAS[call["function"]["name"]]))
        return calls

    def test_required(self):
        for temperature in [0, 1, 2]:
            choice, = self.chat(tools=TOOLS, tool_choice="required", temperature=temperature)
            self.check_calls(choice)
            self.assertFalse(choice["message"]["content"])
            self.assertIn(choice["finish_reason"], ["tool_calls", "length"])

    def test_a_named_function(self):
        for name in SCHEMAS:
            choice, = self.chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}})
            self.assertEqual(len(self.check_calls(choice, [name])), 1)
            self.assertEqual(choice["finish_reason"], "length" if choice.get("steered_to_end") else "tool_calls")

    def test_numbers_keep_their_digits(self):
        number = 2 ** 64 + 1  # which no double is
        pinned = {"properties": {"n": {"const": number}}, "required": ["n"], "additionalProperties": False}
        choice, = self.chat(tools=[tool("count", pinned)], tool_choice="required", parallel_tool_calls=False)
        call, = choice["message"]["tool_calls"]
        self.assertEqual(json.loads(call["function"]["arguments"]), {"n": number})

    def test_one_at_a_time(self):
        for seed in range(3):
            choice, = self.chat(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed)
            self.assertEqual(len(self.check_calls(choice)), 1)

    def test_streams(self):
        body = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": "required",
                "parallel_tool_calls": False, "max_tokens": 200}
        name, arguments = "", ""
        for event in self.server.stream("/v1/chat/completions", body):
            for call in (delta for choice in event["choices"] for delta in choice["delta"].get("tool_calls", [])):
                name += call["function"].get("name") or ""
                arguments += call["function"]["arguments"]
        self.assertTrue(follows(arguments, SCHEMAS[name]))

    def test_several_outputs(self):
        for choice in self.chat(tools=TOOLS, tool_choice="required", n=3, temperature=2):
            self.check_calls(choice)

    def test_not_strict_is_any_object(self):
        free = [tool("get_weather", {"$ref": "elsewhere"}, strict=False)]
        choice, = self.chat(tools=free, tool_choice="required", max_tokens=120)
        for call in choice["message"]["tool_calls"]:
            self.assertTrue(follows(call["function"]["arguments"], {"type": "object"}))

    def test_a_schema_that_cannot_be_enforced(self):
        odd = {"$ref": "elsewhere"}
        for fields in [{"tools": [*TOOLS, tool("odd", odd)], "tool_choice": "required"},
                       {"tools": [*TOOLS, tool("odd", odd, strict=True)], "tool_choice": "required"}]:
            param, message = self.refused(**fields)
            self.assertEqual(param, "tools[2].function.parameters")
            self.assertIn("tools[2].function.parameters cannot be enforced: ", message)
        self.chat(tools=[tool("odd", odd)], max_tokens=10)

    def test_a_call_or_json(self):
        for seed in range(4):
            choice, = self.chat(**CONSTRAINTS["json_schema"][0], tools=TOOLS, seed=seed, temperature=1.5)
            if choice["message"].get("tool_calls"):
                self.check_calls(choice)
            else:
                self.assertTrue(follows(choice["message"]["content"], SCHEMA))


class ToolsOfLlama(Tools):
    TEMPLATE = "llama3.2"


class Reasoning(Tools):
    """Qwen3 may think first: the constraint begins behind that."""

    TEMPLATE = "qwen3"

    def test_the_answer_behind_it(self):
        for name in ["json_schema", "regex", "choice"]:
            fields, is_right = CONSTRAINTS[name]
            with self.subTest(name):
                message = self.chat(**fields)[0]["message"]
                self.assertTrue(is_right(message["content"]), message)
                self.assertGreater(len(message["reasoning_content"]), 0)

    def test_without_thinking_it_begins_at_once(self):
        fields, is_right = CONSTRAINTS["json_schema"]
        message = self.chat(**fields, chat_template_kwargs={"enable_thinking": False})[0]["message"]
        self.assertTrue(is_right(message["content"]), message)
        self.assertFalse(message.get("reasoning_content"))


class ManyTools(Asks):
    """A template that does not show tools leaves room for an answer."""

    ARGUMENTS = ("--tool-call-parser", "hermes")

    def test_128_functions(self):
        tools = [tool(f"function_{i}", CITY) for i in range(128)]
        choice, = self.chat(tools=tools, tool_choice="required", parallel_tool_calls=False)
        call, = choice["message"]["tool_calls"]
        self.assertIn(call["function"]["name"], [f"function_{i}" for i in range(128)])
        self.assertTrue(follows(call["function"]["arguments"], CITY))


class CommandLine(CliTest):
    def generate(self, *arguments, prompts=("-p", "define apple")):
        result = run("generate", "--chat", *prompts, "--max-tokens", "150", "--seed", "1", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_every_option(self):
        with tempfile.TemporaryDirectory() as folder:
            schema, grammar = pathlib.Path(folder, "schema.json"), pathlib.Path(folder, "grammar.gbnf")
            schema.write_text(json.dumps(SCHEMA))
            grammar.write_text(GRAMMAR)
            for options, is_right in [
                    (["--json-schema", schema], lambda text: follows(text, SCHEMA)),
                    (["--json-schema", json.dumps(SCHEMA)], lambda text: follows(text, SCHEMA)),
                    (["--json-object"], lambda text: follows(text, {"type": "object"})),
                    (["--regex", "[ab]{3}"], lambda text: re.fullmatch("[ab]{3}", text)),
                    (["--grammar", grammar], lambda text: re.fullmatch(r"\(*[a-c]{1,3}\)*", text)),
                    (["--grammar", GRAMMAR], lambda text: re.fullmatch(r"\(*[a-c]{1,3}\)*", text)),
                    (["--choice", "noun", "--choice", "verb"], lambda text: text in ["noun", "verb"])]:
                with self.subTest(options):
                    text = self.generate(*map(str, options)).rstrip("\n")
                    self.assertTrue(is_right(text), text)

    def test_lines_say_their_own(self):
        lines = [{"prompt": "apple"}, {"prompt": "pear", "response_format": {"type": "json_object"}},
                 {"prompt": "plum", "structured_outputs": {"choice": ["a", "b"]}}]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "prompts.jsonl")
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            out = self.generate("--json", "--regex", "x{3}", prompts=("--prompt-file", str(path)))
        first, second, third = (json.loads(line) for line in out.splitlines())
        self.assertEqual(first["text"], "xxx")
        self.assertTrue(follows(second["text"], {"type": "object"}))
        self.assertEqual(second.get("steered_to_end", False), second["finish_reason"] == "length")
        self.assertIn(third["text"], ["a", "b"])

    def test_white_space(self):
        for kind, allowed in (("none", ""), ("compact", "[:,] ")):
            for temperature in ("1", "2"):
                text = self.generate("--json-schema", json.dumps(SCHEMA), "--structured-whitespace", kind,
                                     "--temperature", temperature).rstrip("\n")
                self.assertTrue(follows(text, SCHEMA))
                self.assertNotRegex(re.sub(allowed, "", without_strings(text)), r"\s")

    def test_what_is_wrong_is_said(self):
        for says, options in [
                ("--json-schema: #/type", ["--json-schema", '{"type": "text"}']),
                ("--regex: ", ["--regex", "("]),
                ("--grammar: ", ["--grammar", "root ::= missing"]),
                ("--json-schema: cannot read", ["--json-schema", "/no/such/file"]),
                ("are both given, but an output follows one constraint", ["--regex", "a", "--choice", "b"])]:
            with self.subTest(options):
                result = run("generate", "-p", "x", *options)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)


if __name__ == "__main__":
    unittest.main()
