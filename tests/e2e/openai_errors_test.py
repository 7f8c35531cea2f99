"""Errors, limits, time-outs and cancelled requests as OpenAI's client meets them, and the bytes of a stream."""

import asyncio
import concurrent.futures
import json
import re
import unittest

from openai_support import KEY, ClientTest, asynchronous, openai, synchronous, user

QUESTION = user("define apple")
ENDLESS = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
# One sequence at a time, and as many to come as will not end while the test runs.
HOLDING = {"model": "lexicon", "prompt": "define apple", "n": 64, "stream": True, **ENDLESS}


class Errors:
    def assert_refused(self, error, param, fields, message=""):
        with self.assertRaises(error) as caught:
            self.client().chat.completions.create(**{"model": "lexicon", "messages": QUESTION, **fields})
        self.assertEqual(caught.exception.param, param, caught.exception)
        self.assertTrue(caught.exception.type)
        self.assertIn(message, caught.exception.message)
        return caught.exception

    def test_bad_requests(self):
        for param, fields in {
                "n": {"n": 0}, "temperature": {"temperature": -1}, "top_p": {"top_p": 2},
                "max_tokens": {"max_tokens": 0},
                "max_completion_tokens": {"max_completion_tokens": -1}, "messages": {"messages": []},
                "top_logprobs": {"top_logprobs": 2}, "stop[0]": {"stop": [""]},
                "seed": {"seed": "one"},
                "frequency_penalty": {"frequency_penalty": 3}, "stream_options": {"stream_options": {}},
                "response_format.type": {"response_format": {"type": "xml"}},
                "top_k": {"extra_body": {"top_k": -2}}, "min_p": {"extra_body": {"min_p": "much"}},
                "structured_outputs.regex": {"extra_body": {"structured_outputs": {"regex": "("}}},
                "messages[0].role": {"messages": [{"content": "who?"}]}}.items():
            with self.subTest(param):
                error = self.assert_refused(openai.BadRequestError, param, fields)
                self.assertEqual(error.type, "invalid_request_error")

    def test_too_long(self):
        error = self.assert_refused(openai.BadRequestError, "messages", {"messages": user("apple " * 3000)}, "2048")
        self.assertEqual(error.code, "context_length_exceeded")
        error = self.assert_refused(openai.BadRequestError, "max_tokens", {"max_tokens": 2040}, "2048")
        self.assertEqual(error.code, "context_length_exceeded")

    def test_an_unknown_model(self):
        error = self.assert_refused(openai.NotFoundError, "model", {"model": "gpt-4o"}, "gpt-4o")
        self.assertEqual(error.code, "model_not_found")

    def test_bad_keys(self):
        for key in ["wrong", KEY[:-1], KEY + "x"]:
            with self.assertRaises(openai.AuthenticationError) as caught:
                self.client(api_key=key).models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")
            self.assertNotIn(key, caught.exception.message)

    def test_what_there_is_not(self):
        with self.assertRaises(openai.NotFoundError):
            self.client().embeddings.create(model="lexicon", input="define apple")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().completions.create(model="lexicon", prompt="define", suffix="the end")
        self.assertEqual(caught.exception.param, "suffix")

    def test_a_refused_stream(self):
        self.assert_refused(openai.BadRequestError, "n", {"n": -1, "stream": True})

    def test_a_time_out(self):
        client = self.client(timeout=0.3)
        with self.assertRaises(openai.APITimeoutError):
            client.completions.create(model="lexicon", prompt="define apple", n=64, **ENDLESS)
        self.server.wait_until_idle()

    def test_a_stream_that_is_left(self):
        with self.client().completions.create(**HOLDING) as stream:
            next(iter(stream))
        self.server.wait_until_idle()

    def test_no_server(self):
        with self.assertRaises(openai.APIConnectionError):
            self.client(base_url="http://127.0.0.1:1/v1").models.list()


class Full:
    """A server that takes one sequence at a time and lets one request wait."""

    ARGUMENTS = ("--max-num-seqs", 1, "--max-num-queued-requests", 1)

    def test_full_and_tried_again(self):
        holder = openai.OpenAI(**self.options())
        self.addCleanup(holder.close)
        running = holder.completions.create(**HOLDING)
        next(iter(running))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(holder.completions.create, model="lexicon", prompt="define", max_tokens=1)
            # Once somebody waits, everybody else is refused.
            refusals = []
            self.server.wait_for(lambda: refusals.append(self.refusal()) or refusals[-1], "a refusal")
            self.assertEqual(refusals[-1].code, "rate_limit_exceeded")
            self.assertGreaterEqual(int(refusals[-1].response.headers["retry-after"]), 1)

            refused = self.server.metrics()["quire:rejected_requests_total"]
            again = pool.submit(self.client(max_retries=50).completions.create, model="lexicon", prompt="define",
                                max_tokens=1)
            self.server.wait_for(lambda: self.server.metrics()["quire:rejected_requests_total"] > refused,
                                 "another refusal")
            running.close()
            for answer in [waiting, again]:
                self.assertEqual(answer.result().usage.completion_tokens, 1)

    def refusal(self):
        try:
            with openai.OpenAI(**self.options(timeout=1)) as client:
                client.completions.create(model="lexicon", prompt="define", max_tokens=1)
        except openai.RateLimitError as error:
            return error
        except openai.APITimeoutError:
            return None  # it was the one that waited
        return None


SyncErrors, AsyncErrors = synchronous(Errors), asynchronous(Errors)
SyncFull, AsyncFull = synchronous(Full), asynchronous(Full)


class Together(ClientTest):
    """Many at once, on one event loop."""

    WORDS = ["apple", "pear", "run", "happy", "candid"]

    def run_with_client(self, work):
        async def run():
            async with openai.AsyncOpenAI(**self.options()) as client:
                return await work(client)

        return asyncio.run(run())

    @staticmethod
    async def define(client, word, stream):
        fields = {"model": "lexicon", "temperature": 0, "messages": user(f"define {word}"), "max_tokens": 40}
        answer = await client.chat.completions.create(**fields, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    def test_fifty_at_once(self):
        async def work(client):
            alone = {word: await self.define(client, word, False) for word in self.WORDS}
            together = await asyncio.gather(*(self.define(client, self.WORDS[i % 5], i % 2 == 0) for i in range(50)))
            return alone, together

        alone, together = self.run_with_client(work)
        self.assertEqual(together, [alone[self.WORDS[i % 5]] for i in range(50)])
        self.assertEqual(len(set(alone.values())), 5)

    def test_cancelled_tasks_free_the_engine(self):
        async def work(client):
            started = asyncio.Event()

            async def stream():
                async for _ in await client.completions.create(**HOLDING):
                    started.set()

            async def whole():
                await client.completions.create(**{**HOLDING, "stream": False})

            tasks = [asyncio.create_task(stream()), asyncio.create_task(whole())]
            await started.wait()
            await asyncio.to_thread(self.server.wait_for,
                                    lambda: self.server.metrics()["quire:num_requests_running"] > 64, "both to run")
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual([type(result) for result in results], [asyncio.CancelledError] * 2)
            await asyncio.to_thread(self.server.wait_until_idle)

        self.run_with_client(work)


class Bytes(ClientTest):
    """What goes over the wire, to the byte but for ids and times."""

    def stream(self, path, body):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertEqual(response.headers["Content-Type"].partition(";")[0], "text/event-stream")
        text = response.read().decode()
        text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9a-f]{32}"', r'"id":"\1-ID"', text)
        text = re.sub(r'"created":\d{10,}', '"created":NOW', text)
        self.assertTrue(text.endswith("\n\n"))
        return text[:-2].split("\n\n")

    def test_a_chat(self):
        events = self.stream("/v1/chat/completions", {
            "model": "lexicon", "messages": QUESTION, "temperature": 0, "max_tokens": 4,
            "stream_options": {"include_usage": True}})
        head = 'data: {"id":"chatcmpl-ID","object":"chat.completion.chunk","created":NOW,"model":"lexicon","choices":['
        delta = re.escape(head + '{"index":0,"delta":{"content":"') + '(.+)' + re.escape(
            '"},"logprobs":null,"finish_reason":null}],"usage":null}')
        self.assertEqual(events[0], head + '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
                                           '"finish_reason":null}],"usage":null}')
        contents = [re.fullmatch(delta, event) for event in events[1:-3]]
        self.assertTrue(all(contents), events)
        self.assertEqual("".join(match[1] for match in contents), "apple (noun")
        self.assertEqual(events[-3], head + '{"index":0,"delta":{},"logprobs":null,"finish_reason":"length",'
                                            '"stop_reason":null}],"usage":null}')
        self.assertEqual(events[-2], head + '],"usage":{"prompt_tokens":11,"completion_tokens":4,"total_tokens":15,'
                                            '"prompt_tokens_details":{"cached_tokens":0},'
                                            '"completion_tokens_details":{"reasoning_tokens":0}}}')
        self.assertEqual(events[-1], "data: [DONE]")

    def test_a_completion(self):
        events = self.stream("/v1/completions", {"prompt": "define apple", "temperature": 0, "max_tokens": 3})
        head = 'data: {"id":"cmpl-ID","object":"text_completion","created":NOW,"model":"lexicon","choices":['
        text = re.escape(head + '{"index":0,"text":"') + '(.+)' + re.escape(
            '","logprobs":null,"finish_reason":null}]}')
        self.assertTrue(all(re.fullmatch(text, event) for event in events[:-2]), events)
        self.assertEqual(events[-2], head + '{"index":0,"text":"","logprobs":null,"finish_reason":"length",'
                                            '"stop_reason":null}]}')
        self.assertEqual(events[-1], "data: [DONE]")


if __name__ == "__main__":
    unittest.main()
