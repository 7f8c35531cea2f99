"""parse() of OpenAI's client: answers and calls as Pydantic's models, whatever the model would write."""

import unittest
from typing import Literal

from openai_support import ClientTest, asynchronous, openai, synchronous, user
from support import SOURCE_DIR, model_copy

from pydantic import BaseModel, Field

TEMPLATE = SOURCE_DIR / "tests" / "golden" / "chat" / "templates" / "qwen2_5.jinja"


class Sense(BaseModel):
    text: str = Field(max_length=12)
    number: int = Field(ge=1, le=9)


class Entry(BaseModel):
    word: str = Field(max_length=12)
    kind: Literal["noun", "verb"]
    senses: list[Sense] = Field(max_length=2)


class Parse:
    @classmethod
    def model(cls):
        return model_copy(chat_template__jinja=TEMPLATE.read_text())

    def fields(self, **fields):
        model = self.client().models.list().data[0].id
        return {"model": model, "messages": user("define apple"), "max_completion_tokens": 400, "seed": 3, **fields}

    def test_an_answer(self):
        for temperature in [0, 1, 2]:
            answer = self.client().chat.completions.parse(**self.fields(response_format=Entry, temperature=temperature))
            self.assertIsInstance(answer.choices[0].message.parsed, Entry)

    def test_a_stream(self):
        with self.client().chat.completions.stream(**self.fields(response_format=Entry)) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("content.done", events)
        self.assertIsInstance(final.choices[0].message.parsed, Entry)

    def test_a_strict_call(self):
        tools = [openai.pydantic_function_tool(Entry), openai.pydantic_function_tool(Sense)]
        answer = self.client().chat.completions.parse(
            **self.fields(tools=tools, tool_choice="required", parallel_tool_calls=False))
        call, = answer.choices[0].message.tool_calls
        self.assertIsInstance(call.function.parsed_arguments, (Entry, Sense))

    def test_a_call_or_an_answer(self):
        answer = self.client().chat.completions.parse(
            **self.fields(tools=[openai.pydantic_function_tool(Sense)], response_format=Entry))
        message = answer.choices[0].message
        if message.tool_calls:
            self.assertIsInstance(message.tool_calls[0].function.parsed_arguments, Sense)
        else:
            self.assertIsInstance(message.parsed, Entry)


SyncParse = synchronous(Parse)
AsyncParse = asynchronous(Parse)


if __name__ == "__main__":
    unittest.main()
