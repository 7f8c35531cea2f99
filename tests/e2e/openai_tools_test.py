"""Tool calls and reasoning as OpenAI's client gets them, from models that say what a real one would."""

import json
import unittest

from openai_support import ClientTest, asynchronous, openai, synchronous, user
from scripted_model import scripted_model
from support import SOURCE_DIR, model_copy

from pydantic import BaseModel

TEMPLATES = SOURCE_DIR / "tests" / "golden" / "chat" / "templates"
QWEN3 = (TEMPLATES / "qwen3.jinja").read_text()
LLAMA3 = (TEMPLATES / "llama3.2.jinja").read_text()


def tool(name, *parameters):
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return {"type": "function", "function": {
        "name": name, "description": f"Does {name}.",
        "parameters": {"type": "object", "properties": properties, "required": list(parameters)}}}


TOOLS = [tool("get_weather", "city"), tool("get_time")]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


class Scripted:
    TEMPLATE = QWEN3
    SCRIPT = ()
    ENDLESS = False
    BY_TOKENIZER = True

    @classmethod
    def model(cls):
        return scripted_model(cls.TEMPLATE, cls.SCRIPT, cls.ENDLESS, cls.BY_TOKENIZER)

    def ask(self, **fields):
        model = self.client().models.list().data[0].id
        return self.client().chat.completions.create(
            **{"model": model, "messages": user("What is the weather?"), "temperature": 0,
               "max_completion_tokens": 150, **fields})

    def choice(self, **fields):
        return self.ask(**fields).choices[0]

    def calls(self, choice):
        """[(name, arguments)], once the calls have proved to be in good order."""
        calls = choice.message.tool_calls or []
        self.assertEqual(len({call.id for call in calls}), len(calls))
        self.assertTrue(all(call.id and call.type == "function" for call in calls))
        return [(call.function.name, call.function.arguments) for call in calls]

    def streamed(self, **fields):
        """(content, reasoning, calls, finish reason, number of pieces of arguments) of a stream."""
        content, reasoning, calls, pieces, finish = "", "", {}, 0, None
        for chunk in self.ask(stream=True, **fields):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", "")
            for call in delta.tool_calls or []:
                if call.index not in calls:
                    self.assertTrue(call.id)
                    self.assertEqual(call.type, "function")
                    calls[call.index] = [call.function.name, ""]
                else:
                    self.assertIsNone(call.id)
                    self.assertIsNone(call.function.name)
                calls[call.index][1] += call.function.arguments
                pieces += bool(call.function.arguments)
            finish = chunk.choices[0].finish_reason or finish
        self.assertEqual(list(calls), list(range(len(calls))))
        return content, reasoning, [tuple(call) for call in calls.values()], finish, pieces


class OneCall(Scripted):
    """Text, then a call."""

    SCRIPT = ("Let me ", "look. ", "<tool_call>\n", '{"name": "get_wea', 'ther", ', '"arguments": {"ci', 'ty": "Par',
              'is"}}', "\n</tool_call>")
    CALL = ("get_weather", '{"city": "Paris"}')

    def test_auto(self):
        for fields in [{}, {"tool_choice": "auto"}]:
            choice = self.choice(tools=TOOLS, **fields)
            self.assertEqual(self.calls(choice), [self.CALL])
            self.assertEqual(choice.message.content.rstrip(), "Let me look.")
            self.assertEqual(choice.finish_reason, "tool_calls")

    def test_a_stream(self):
        content, _, calls, finish, _ = self.streamed(tools=TOOLS)
        self.assertEqual((content.rstrip(), calls, finish), ("Let me look.", [self.CALL], "tool_calls"))

    def test_none(self):
        for fields in [{"tools": TOOLS, "tool_choice": "none"}, {}]:
            choice = self.choice(**fields)
            self.assertEqual((choice.message.content, choice.message.tool_calls), ("".join(self.SCRIPT), None))
            self.assertEqual(choice.finish_reason, "stop")

    def test_the_helper_for_streams(self):
        with self.client().chat.completions.stream(model=self.client().models.list().data[0].id, temperature=0,
                                                   messages=user("What?"), tools=TOOLS) as stream:
            events = [event for event in stream if event.type.startswith("tool_calls.")]
            final = stream.get_final_completion()
        self.assertEqual("".join(e.arguments_delta for e in events if e.type.endswith("delta")), self.CALL[1])
        self.assertEqual([(e.name, e.arguments) for e in events if e.type.endswith("done")], [self.CALL])
        self.assertEqual(self.calls(final.choices[0]), [self.CALL])
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")

    def test_parsed_arguments(self):
        class Place(BaseModel):
            city: str

        answer = self.client().chat.completions.parse(
            model=self.client().models.list().data[0].id, messages=user("What?"), temperature=0,
            tools=[openai.pydantic_function_tool(Place, name="get_weather")])
        self.assertEqual(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Place(city="Paris"))

    def test_the_conversation_goes_on(self):
        call = self.choice(tools=TOOLS).message
        messages = [*user("What is the weather?"), call.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "It rains."}]
        self.assertEqual(self.calls(self.choice(messages=messages, tools=TOOLS)), [self.CALL])
        tokens = self.post("/tokenize", {"messages": messages, "tools": TOOLS})["tokens"]
        prompt = self.post("/detokenize", {"tokens": tokens})["prompt"]
        self.assertIn('{"name": "get_weather", "arguments": {"city": "Paris"}}', prompt)
        self.assertIn("<tool_response>\nIt rains.\n</tool_response>", prompt)

    def test_several_outputs(self):
        answer = self.ask(tools=TOOLS, n=3)
        self.assertEqual([self.calls(choice) for choice in answer.choices], [[self.CALL]] * 3)
        self.assertEqual(len({choice.message.tool_calls[0].id for choice in answer.choices}), 3)


class TwoCalls(Scripted):
    SCRIPT = ('<tool_call>\n{"name": "get_weather", ', '"arguments": {"city": "Ro', 'me"}}\n</tool_call>',
              '\n<tool_call>\n{"name": "get_time", "argu', 'ments": {}}', "\n</tool_call>")
    CALLS = [("get_weather", '{"city": "Rome"}'), ("get_time", "{}")]

    def test_parallel_calls(self):
        choice = self.choice(tools=TOOLS)
        self.assertEqual((self.calls(choice), choice.finish_reason), (self.CALLS, "tool_calls"))
        self.assertIsNone(choice.message.content)
        self.assertEqual(self.streamed(tools=TOOLS)[:4], ("", "", self.CALLS, "tool_calls"))

    def test_one_at_a_time(self):
        choice = self.choice(tools=TOOLS, parallel_tool_calls=False)
        self.assertEqual((self.calls(choice), choice.finish_reason), (self.CALLS[:1], "tool_calls"))
        self.assertEqual(self.streamed(tools=TOOLS, parallel_tool_calls=False)[2:4], (self.CALLS[:1], "tool_calls"))


class Named(Scripted):
    """The call's frame is forced, so that the model writes its arguments."""

    SCRIPT = ('{"city": "Os', 'lo {\\"1\\"}"}', "}\n</tool_", "call>")
    CALL = ("get_weather", '{"city": "Oslo {\\"1\\"}"}')

    def test_a_named_function(self):
        choice = self.choice(tools=TOOLS, tool_choice=NAMED)
        self.assertEqual((self.calls(choice), choice.message.content), ([self.CALL], None))
        self.assertEqual(choice.finish_reason, "tool_calls")
        content, _, calls, finish, _ = self.streamed(tools=TOOLS, tool_choice=NAMED)
        self.assertEqual((content, calls, finish), ("", [self.CALL], "tool_calls"))


class EndlessArguments(Scripted):
    SCRIPT = ('{"city": "La', " la la")
    ENDLESS = True

    def test_they_come_while_they_are_written(self):
        # Tokens that are ready together come together, but not as many as these.
        _, _, [(name, arguments)], finish, pieces = self.streamed(tools=TOOLS, tool_choice=NAMED,
                                                                  max_completion_tokens=1500)
        # The call is ended in time.
        self.assertEqual(name, "get_weather")
        self.assertRegex(json.loads(arguments)["city"], "^La( la la){1000,}")
        self.assertEqual(finish, "length")
        self.assertGreater(pieces, 1)


class Required(Scripted):
    SCRIPT = ("get_t", 'ime", "arg', 'uments": {', '"zone": "UTC"}}', "\n</tool_call>")
    CALL = ("get_time", '{"zone": "UTC"}')

    def test_some_function(self):
        choice = self.choice(tools=TOOLS, tool_choice="required")
        self.assertEqual((self.calls(choice), choice.finish_reason), ([self.CALL], "tool_calls"))
        self.assertEqual(self.streamed(tools=TOOLS, tool_choice="required")[2:4], ([self.CALL], "tool_calls"))


class NoName(Scripted):
    """A call that is forced is valid, whatever the model wants to write."""

    SCRIPT = ("I'm sorry, ", "I don't know that word.")
    CHOICE = "required"

    def test_is_a_call(self):
        fields = {"tools": TOOLS, "tool_choice": self.CHOICE, "parallel_tool_calls": False}
        (name, arguments), = self.calls(self.choice(**fields))
        self.assertIn(name, ["get_weather", "get_time"])
        self.assertIsInstance(json.loads(arguments), dict)
        if name == "get_weather":
            self.assertIsInstance(json.loads(arguments)["city"], str)
        content, _, calls, _, _ = self.streamed(**fields)
        self.assertEqual((content, calls), ("", [(name, arguments)]))


    def test_a_stop_string_that_cuts_the_call_is_an_error(self):
        fields = {"tools": TOOLS, "tool_choice": self.CHOICE, "parallel_tool_calls": False}
        for stop in ("name", '"', "{", "<tool_call>", "arguments"):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(stop=[stop], **fields)
            self.assertEqual((caught.exception.param, caught.exception.code), ("stop", "invalid_value"))
            with self.assertRaises(openai.APIError) as caught:
                self.streamed(stop=[stop], **fields)
            self.assertIn("cut the call that tool_choice forces", caught.exception.message)
        choice = self.choice(stop=["</tool_call>"], **fields)
        self.assertEqual((len(self.calls(choice)), choice.finish_reason), (1, "tool_calls"))

    def test_a_timeout_never_gives_half_a_call(self):
        fields = {"tools": TOOLS, "tool_choice": self.CHOICE, "parallel_tool_calls": False}
        whole = self.calls(self.choice(**fields))
        client = self.client().with_options(max_retries=0)
        model = client.models.list().data[0].id
        for timeout in (0.001, 0.005, 0.02, 0.05, 0.1, 0.3):
            try:
                answer = client.chat.completions.create(
                    model=model, messages=user("What is the weather?"), temperature=0, max_completion_tokens=150,
                    extra_body={"timeout": timeout}, **fields)
                self.assertEqual([call[0] for call in self.calls(answer.choices[0])], [call[0] for call in whole])
                json.loads(self.calls(answer.choices[0])[0][1])
            except openai.APIStatusError as error:
                self.assertIn(error.status_code, (408, 429))


class NoArguments(NoName):
    SCRIPT = ("{}", "}\n</tool_call>")
    CHOICE = NAMED


class Llama3(Scripted):
    TEMPLATE = LLAMA3
    SCRIPT = ('{"name": "get_wea', 'ther", "para', 'meters": {"city": "Par', 'is"}}')
    CALL = ("get_weather", '{"city": "Paris"}')

    def test_auto(self):
        choice = self.choice(tools=TOOLS)
        self.assertEqual((self.calls(choice), choice.finish_reason), ([self.CALL], "tool_calls"))
        content, _, calls, finish, _ = self.streamed(tools=TOOLS)
        self.assertEqual((content, calls, finish), ("", [self.CALL], "tool_calls"))


class Llama3Named(Scripted):
    TEMPLATE = LLAMA3
    SCRIPT = ('{"city": ', '"Bern"', "}}")

    def test_a_named_function(self):
        choice = self.choice(tools=TOOLS, tool_choice=NAMED)
        self.assertEqual(self.calls(choice), [("get_weather", '{"city": "Bern"}')])
        self.assertEqual(self.streamed(tools=TOOLS, tool_choice=NAMED)[2:4],
                         ([("get_weather", '{"city": "Bern"}')], "tool_calls"))


class Reasoning(Scripted):
    SCRIPT = ("<think>", "\nHm, ", "well: 2 < 3.", "\n</think>\n\n", "It ", "rains.")
    BY_TOKENIZER = False  # a prompt may end with one of these

    def test_it_is_kept_apart(self):
        answer = self.ask()
        message = answer.choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Hm, well: 2 < 3.", "It rains."))
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertEqual(self.streamed()[:2], ("It rains.", "Hm, well: 2 < 3."))

    def test_it_may_be_left_out(self):
        message = self.choice(extra_body={"include_reasoning": False}).message
        self.assertEqual((getattr(message, "reasoning_content", None), message.content), (None, "It rains."))
        self.assertEqual(self.streamed(extra_body={"include_reasoning": False})[:2], ("It rains.", ""))

    def test_none_where_the_prompt_has_closed_it(self):
        for fields in [{"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
                       {"reasoning_effort": "none"}]:
            message = self.choice(**fields).message
            self.assertEqual((getattr(message, "reasoning_content", None), message.content),
                             (None, "".join(self.SCRIPT)))


class ReasoningOpenedByThePrompt(Scripted):
    """As DeepSeek's and QwQ's templates have it: the answer never says <think>."""

    TEMPLATE = QWEN3.replace("{{- '<|im_start|>assistant\\n' }}", "{{- '<|im_start|>assistant\\n<think>\\n' }}")
    SCRIPT = ("Rain?", " Yes.\n", "</thi", "nk>\n\n", "<tool_call>\n", '{"name": "get_time", "arguments": {}}',
              "\n</tool_call>")

    def test_reasoning_and_a_call(self):
        self.assertNotEqual(self.TEMPLATE, QWEN3)
        choice = self.choice(tools=TOOLS)
        self.assertEqual(choice.message.reasoning_content, "Rain? Yes.")
        self.assertEqual(self.calls(choice), [("get_time", "{}")])
        content, reasoning, calls, finish, _ = self.streamed(tools=TOOLS)
        self.assertEqual((content, reasoning, calls, finish),
                         ("", "Rain? Yes.", [("get_time", "{}")], "tool_calls"))


class AnyWeights:
    """A model that knows nothing of tools is made to call one."""

    @classmethod
    def model(cls):
        return model_copy(chat_template__jinja=QWEN3)

    ask, choice, streamed, calls = Scripted.ask, Scripted.choice, Scripted.streamed, Scripted.calls

    def test_forced_calls(self):
        for choice in [NAMED, "required"]:
            fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
            message = self.choice(**fields).message
            if choice is NAMED:
                self.assertEqual(message.tool_calls[0].function.name, "get_weather")
            content, _, calls, _, _ = self.streamed(**fields)
            self.assertEqual((content, calls), (message.content or "", self.calls(self.choice(**fields))))
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**fields | {"max_completion_tokens": 2})
            self.assertEqual(caught.exception.param, "max_tokens")

    def test_what_is_refused(self):
        for fields in [{"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
                       {"tool_choice": "required"}, {"tool_choice": NAMED}, {"tools": TOOLS, "tool_choice": "some"}]:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**fields)
            self.assertEqual(caught.exception.param, "tool_choice", fields)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(tools=[{"type": "function", "function": {"description": "It has no name."}}])
        self.assertIn("tools", caught.exception.param)


class NoTools(ClientTest):
    """The bundled model's template knows no tools."""

    def test_they_cannot_be_forced(self):
        client = self.sync_client()
        fields = {"model": "lexicon", "messages": user("define apple"), "tools": TOOLS, "max_completion_tokens": 5}
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(**fields, tool_choice="required")
        self.assertEqual(caught.exception.param, "tool_choice")
        self.assertEqual(client.chat.completions.create(**fields).choices[0].message.tool_calls, None)


for tests in [OneCall, TwoCalls, Named, EndlessArguments, Required, NoName, NoArguments, Llama3, Llama3Named, Reasoning,
              ReasoningOpenedByThePrompt, AnyWeights]:
    for kind in [synchronous, asynchronous]:
        case = kind(tests)
        globals()[case.__name__] = case
del case


if __name__ == "__main__":
    unittest.main()
