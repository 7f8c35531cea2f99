"""What OpenAI's own client gets from `quire serve`: models, chats and completions, synchronous and asynchronous."""

import json
import unittest

from openai_support import ClientTest, asynchronous, openai, synchronous, user
from support import SOURCE_DIR

QUESTION = user("define apple")
GREEDY = {"model": "lexicon", "temperature": 0}
# Beyond the end of an answer, where the model repeats itself.
ENDLESS = {"ignore_eos": True}
GOLDEN = SOURCE_DIR / "tests" / "golden" / "models" / "qwen3-tied"


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


class Models:
    def test_list_and_retrieve(self):
        client = self.client()
        models = client.models.list()
        self.assertEqual([model.id for model in models.data], ["lexicon"])
        self.assertEqual([model.id for model in client.models.list()], ["lexicon"])
        model = client.models.retrieve("lexicon")
        self.assertEqual((model.id, model.object, model.owned_by), ("lexicon", "model", "quire"))
        self.assertEqual(model.max_model_len, 2048)
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("org/other")


class Chat:
    def ask(self, messages=QUESTION, **fields):
        return self.client().chat.completions.create(messages=messages, **{**GREEDY, **fields})

    def content(self, **fields):
        return self.ask(**fields).choices[0].message.content

    def test_an_answer(self):
        answer = self.ask()
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.message.role, choice.finish_reason), (0, "assistant", "stop"))
        self.assertTrue(choice.message.content.startswith("apple (noun): fruit"), choice.message.content)
        self.assertIsNone(choice.message.tool_calls)
        self.assertIsNone(choice.message.refusal)
        self.assertIsNone(choice.logprobs)
        self.assertEqual((answer.object, answer.model), ("chat.completion", "lexicon"))
        self.assertTrue(answer.id.startswith("chatcmpl-"), answer.id)
        self.assertIn(answer._request_id, answer.id)
        usage = answer.usage
        self.assertEqual(usage.prompt_tokens, self.post("/tokenize", {"messages": QUESTION})["count"])
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_a_stream(self):
        whole = self.ask()
        chunks = list(self.ask(stream=True))
        self.assertEqual(text_of(chunks), whole.choices[0].message.content)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual((chunks[0].choices[0].delta.role, chunks[0].choices[0].delta.content), ("assistant", ""))
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks],
                         [None] * (len(chunks) - 1) + ["stop"])
        self.assertTrue(all(chunk.usage is None for chunk in chunks))

    def test_the_usage_of_a_stream_and_cached_tokens(self):
        question = user("define candid, please, " + "and take your time, " * 10)
        whole = self.ask(question, max_completion_tokens=5)
        chunks = list(self.ask(question, max_completion_tokens=5, stream=True,
                               stream_options={"include_usage": True}))
        self.assertTrue(all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1]))
        self.assertEqual(chunks[-1].choices, [])
        usage = chunks[-1].usage
        self.assertEqual((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
                         (whole.usage.prompt_tokens, 5, whole.usage.prompt_tokens + 5))
        self.assertEqual(whole.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, (usage.prompt_tokens - 1) // 16 * 16)
        salted = self.ask(question, max_completion_tokens=5, extra_body={"cache_salt": "grain"})
        self.assertEqual(salted.usage.prompt_tokens_details.cached_tokens, 0)

    def test_the_usage_so_far(self):
        options = {"include_usage": True, "continuous_usage_stats": True}
        counts = [chunk.usage.completion_tokens for chunk in self.ask(stream=True, stream_options=options)]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual((counts[0], counts[-1]), (0, self.ask().usage.completion_tokens))

    def test_several_outputs(self):
        fields = {"temperature": 10, "seed": 3, "n": 3, "max_completion_tokens": 12}
        choices = self.ask(**fields).choices
        self.assertEqual([choice.index for choice in choices], [0, 1, 2])
        self.assertGreater(len({choice.message.content for choice in choices}), 1)
        texts = ["", "", ""]
        finished = []
        for chunk in self.ask(**fields, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
            if chunk.choices[0].finish_reason:
                finished.append(chunk.choices[0].index)
        self.assertEqual(texts, [choice.message.content for choice in choices])
        self.assertEqual(sorted(finished), [0, 1, 2])

    def test_logprobs(self):
        whole = self.ask(logprobs=True, top_logprobs=3).choices[0]
        content = whole.logprobs.content
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertGreaterEqual(token.top_logprobs[0].logprob, token.top_logprobs[1].logprob)
            self.assertEqual(bytes(token.bytes).decode(), token.token)
        self.assertTrue("".join(token.token for token in content).startswith(whole.message.content))
        streamed = [token for chunk in self.ask(logprobs=True, top_logprobs=3, stream=True)
                    if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content]
        self.assertEqual([token.token for token in streamed], [token.token for token in content])
        alone = self.ask(logprobs=True).choices[0].logprobs.content
        self.assertEqual({len(token.top_logprobs) for token in alone}, {0})
        ids = self.ask(logprobs=True, extra_body={"return_tokens_as_token_ids": True}).choices[0].logprobs.content
        self.assertEqual(ids[0].token, f"token_id:{self.token_id(alone[0].token)}")

    def token_id(self, text):
        [token] = self.post("/tokenize", {"prompt": text})["tokens"]
        return token

    def test_stop(self):
        choice = self.ask(stop=["nothing of the kind", " ("]).choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), ("apple", "stop"))
        self.assertEqual(choice.stop_reason, " (")
        self.assertEqual(self.content(stop="le (n", extra_body={"include_stop_str_in_output": True}), "apple (n")
        self.assertEqual(text_of(self.ask(stop="le (n", stream=True)), "app")
        stopped = self.ask(extra_body={"stop_token_ids": [self.token_id("le")]}).choices[0]
        self.assertEqual((stopped.message.content, stopped.stop_reason), ("app", self.token_id("le")))

    def test_seeds(self):
        def sampled(seed):
            return self.content(temperature=10, seed=seed, max_completion_tokens=20)

        self.assertEqual(sampled(7), sampled(7))
        self.assertGreater(len({sampled(seed) for seed in range(4)}), 1)

    def test_limits(self):
        answer = self.ask(max_completion_tokens=3, max_tokens=9)
        self.assertEqual((answer.usage.completion_tokens, answer.choices[0].finish_reason), (3, "length"))
        self.assertEqual(self.ask(max_tokens=2).usage.completion_tokens, 2)
        longer = self.ask(max_completion_tokens=60, extra_body={"min_tokens": 60})
        self.assertEqual((longer.usage.completion_tokens, longer.choices[0].finish_reason), (60, "length"))
        endless = self.ask(max_completion_tokens=70, extra_body=ENDLESS)
        self.assertEqual((endless.usage.completion_tokens, endless.choices[0].finish_reason), (70, "length"))

    def test_logit_bias(self):
        token = self.token_id(" fruit")
        self.assertEqual(self.content(logit_bias={token: 100}, max_completion_tokens=3), " fruit fruit fruit")
        first = self.token_id("app")
        self.assertFalse(self.content(logit_bias={first: -100}, max_completion_tokens=3).startswith("app"))

    def test_sampling_that_leaves_one_token(self):
        greedy = self.content()
        for fields in [{"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1}}, {"top_p": 1e-6}]:
            self.assertEqual(self.content(temperature=1, **fields), greedy, fields)

    def test_penalties(self):
        plain = self.content(max_completion_tokens=60, extra_body=ENDLESS)
        for fields in [{"frequency_penalty": 2}, {"presence_penalty": 2},
                       {"extra_body": {"repetition_penalty": 1.8}}]:
            body = {**ENDLESS, **fields.pop("extra_body", {})}
            self.assertNotEqual(self.content(max_completion_tokens=60, extra_body=body, **fields), plain)

    def test_going_on_from_the_last_message(self):
        messages = [*QUESTION, {"role": "assistant", "content": "apple (noun):"}]
        fields = {"add_generation_prompt": False, "continue_final_message": True}
        rest = self.ask(messages, extra_body=fields).choices[0].message.content
        self.assertTrue(rest.startswith(" fruit"), rest)
        self.assertEqual(self.ask(messages, extra_body={**fields, "echo": True}).choices[0].message.content,
                         "apple (noun):" + rest)
        self.assertEqual(text_of(self.ask(messages, stream=True, extra_body={**fields, "echo": True})),
                         "apple (noun):" + rest)

    def test_without_a_generation_prompt(self):
        fields = {"add_generation_prompt": False}
        answer = self.ask(max_completion_tokens=2, extra_body={**fields, "return_token_ids": True})
        self.assertEqual(answer.prompt_token_ids,
                         self.post("/tokenize", {"messages": QUESTION, **fields})["tokens"])

    def test_token_ids(self):
        answer = self.ask(extra_body={"return_token_ids": True})
        self.assertEqual(answer.prompt_token_ids, self.post("/tokenize", {"messages": QUESTION})["tokens"])
        ids = answer.choices[0].token_ids
        self.assertEqual(len(ids), answer.usage.completion_tokens)
        text = self.post("/detokenize", {"tokens": ids})["prompt"]
        self.assertEqual(text.removesuffix("<|im_end|>"), answer.choices[0].message.content)
        chunks = list(self.ask(stream=True, extra_body={"return_token_ids": True}))
        self.assertEqual([i for chunk in chunks for i in getattr(chunk.choices[0], "token_ids", [])], ids)
        self.assertEqual([chunk.prompt_token_ids for chunk in chunks if hasattr(chunk, "prompt_token_ids")],
                         [answer.prompt_token_ids])

    def test_prompt_logprobs(self):
        answer = self.ask(max_completion_tokens=1, extra_body={"prompt_logprobs": 2})
        self.assertEqual(len(answer.prompt_logprobs), answer.usage.prompt_tokens)
        self.assertIsNone(answer.prompt_logprobs[0])
        for position in answer.prompt_logprobs[1:]:
            self.assertIn(1, [token["rank"] for token in position.values()])

    def test_fields_that_change_no_token(self):
        answer = self.ask(user="somebody", store=False, metadata={"a": "b"}, service_tier="auto",
                          prompt_cache_key="k", safety_identifier="s", verbosity="low", parallel_tool_calls=True,
                          modalities=["text"], response_format={"type": "text"}, reasoning_effort="low",
                          extra_body={"priority": -3, "cache_salt": "x", "timeout": 100, "request_id": "mine",
                                      "chat_template_kwargs": {"enable_thinking": False},
                                      "skip_special_tokens": False, "spaces_between_special_tokens": False,
                                      "include_reasoning": True, "max_token": 1})
        self.assertEqual(answer.id, "chatcmpl-mine")
        self.assertEqual(answer.choices[0].message.content.removesuffix("<|im_end|>"), self.content())
        self.assertIn("max_tokens?", self.server.log)

    def test_kinds_of_messages(self):
        plain = self.content()
        parts = [{"role": "user", "content": [{"type": "text", "text": "define apple"}]}]
        self.assertEqual(self.ask(parts).choices[0].message.content, plain)
        developer = [{"role": "developer", "content": "Be brief."}, *QUESTION]
        system = [{"role": "system", "content": "Be brief."}, *QUESTION]
        self.assertEqual(self.post("/tokenize", {"messages": developer}), self.post("/tokenize", {"messages": system}))

    def test_the_helper_for_streams(self):
        with self.client().chat.completions.stream(messages=QUESTION, **GREEDY, logprobs=True, top_logprobs=1,
                                                   stream_options={"include_usage": True}) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_completion()
        whole = self.ask(logprobs=True, top_logprobs=1)
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)
        self.assertEqual(final.choices[0].finish_reason, "stop")
        self.assertEqual(len(final.choices[0].logprobs.content), len(whole.choices[0].logprobs.content))
        self.assertEqual(final.usage.completion_tokens, whole.usage.completion_tokens)
        self.assertLessEqual({"chunk", "content.delta", "content.done", "logprobs.content.done"}, set(events))

    def test_a_stream_as_a_context(self):
        with self.ask(stream=True) as stream:
            self.assertTrue(text_of(stream).startswith("apple"))

    def test_the_raw_response(self):
        raw = self.client().chat.completions.with_raw_response.create(
            messages=QUESTION, **GREEDY, extra_headers={"X-Request-Id": "client-id"})
        self.assertEqual(raw.headers["X-Request-Id"], "client-id")
        self.assertEqual(raw.headers["Content-Type"], "application/json")
        self.assertEqual(raw.parse().id, "chatcmpl-client-id")


class Completions:
    def complete(self, prompt, **fields):
        return self.client().completions.create(prompt=prompt, **{**GREEDY, "max_tokens": 8, **fields})

    def test_kinds_of_prompts(self):
        texts = ["define apple", "define pear"]
        ids = [self.post("/tokenize", {"prompt": text})["tokens"] for text in texts]
        alone = [self.complete(text).choices[0].text for text in texts]
        for prompt in [texts, ids]:
            answer = self.complete(prompt)
            self.assertEqual([choice.text for choice in answer.choices], alone)
            self.assertEqual([choice.index for choice in answer.choices], [0, 1])
            self.assertEqual(answer.usage.prompt_tokens, sum(map(len, ids)))
        self.assertEqual(self.complete(ids[0]).choices[0].text, alone[0])
        several = self.complete(texts, n=2, extra_body={"best_of": 2})
        self.assertEqual([choice.text for choice in several.choices], [alone[0]] * 2 + [alone[1]] * 2)

    def test_an_answer(self):
        answer = self.complete("define apple", max_tokens=openai.omit, extra_body=ENDLESS)
        self.assertEqual((answer.object, answer.model), ("text_completion", "lexicon"))
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_echo(self):
        rest = self.complete("define apple").choices[0].text
        self.assertEqual(self.complete("define apple", echo=True).choices[0].text, "define apple" + rest)
        tokens = self.post("/tokenize", {"prompt": "define apple"})["tokens"]
        self.assertEqual(self.complete(tokens, echo=True).choices[0].text, "define apple" + rest)
        streamed = "".join(chunk.choices[0].text for chunk in self.complete("define apple", echo=True, stream=True))
        self.assertEqual(streamed, "define apple" + rest)

    def test_logprobs(self):
        choice = self.complete("define apple", logprobs=2).choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual(logprobs.text_offset[0], 0)
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertEqual(top[token], logprob)
            self.assertEqual(max(top.values()), logprob)
        echoed = self.complete("define apple", logprobs=2, echo=True).choices[0].logprobs
        self.assertEqual("".join(echoed.tokens), "define apple" + choice.text)
        self.assertIsNone(echoed.token_logprobs[0])
        self.assertEqual(echoed.tokens[3:], logprobs.tokens)

    def test_prompt_logprobs_and_ids(self):
        choice = self.complete("define apple", extra_body={"prompt_logprobs": 1, "return_token_ids": True}).choices[0]
        self.assertEqual(choice.prompt_token_ids, self.post("/tokenize", {"prompt": "define apple"})["tokens"])
        self.assertEqual(len(choice.token_ids), 8)
        self.assertIsNone(choice.prompt_logprobs[0])
        for token, position in zip(choice.prompt_token_ids[1:], choice.prompt_logprobs[1:]):
            self.assertIn(str(token), position)

    def test_a_stream(self):
        whole = self.complete(["define apple", "define pear"])
        texts = ["", ""]
        chunks = list(self.complete(["define apple", "define pear"], stream=True,
                                    stream_options={"include_usage": True}))
        for chunk in chunks[:-1]:
            texts[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(texts, [choice.text for choice in whole.choices])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_penalties_and_stops(self):
        plain = self.complete("define apple").choices[0].text
        self.assertNotEqual(self.complete("define apple", extra_body={"repetition_penalty": 5}).choices[0].text, plain)
        stopped = self.complete("define apple", stop=plain[2:5]).choices[0]
        self.assertEqual((stopped.text, stopped.finish_reason), (plain[:plain.index(plain[2:5])], "stop"))


class GoldenModel:
    """A tiny checkpoint without a tokenizer, whose greedy tokens transformers has said."""

    ARGUMENTS = (GOLDEN, "--skip-tokenizer-init")

    def test_token_ids_as_transformers_has_them(self):
        prompts = json.loads((GOLDEN / "golden.json").read_text())["prompts"]
        for golden in prompts:
            self.assertEqual(self.token_ids(golden["prompt_token_ids"], len(golden["output_token_ids"])),
                             [golden["output_token_ids"]])
        length = min(len(golden["output_token_ids"]) for golden in prompts)
        self.assertEqual(self.token_ids([golden["prompt_token_ids"] for golden in prompts], length),
                         [golden["output_token_ids"][:length] for golden in prompts])

    def token_ids(self, prompt, max_tokens):
        answer = self.client().completions.create(
            model="qwen3-tied", prompt=prompt, temperature=0, max_tokens=max_tokens,
            extra_body={**ENDLESS, "return_token_ids": True})
        return [choice.token_ids for choice in answer.choices]

    def test_text_is_refused(self):
        with self.assertRaisesRegex(openai.BadRequestError, "no tokenizer"):
            self.client().completions.create(model="qwen3-tied", prompt="text")
        with self.assertRaises(openai.BadRequestError):
            self.client().chat.completions.create(model="qwen3-tied", messages=QUESTION)


SyncModels, AsyncModels = synchronous(Models), asynchronous(Models)
SyncChat, AsyncChat = synchronous(Chat), asynchronous(Chat)
SyncCompletions, AsyncCompletions = synchronous(Completions), asynchronous(Completions)
SyncGoldenModel, AsyncGoldenModel = synchronous(GoldenModel), asynchronous(GoldenModel)


class Tokens(ClientTest):
    """What vLLM's clients use beside OpenAI's API."""

    def test_round_trips(self):
        for text in ["define apple", "", " ", "naïve 🍎\n\ttabs", "<|im_start|>user", "\u0000\u2028\ufffd"]:
            answer = self.post("/tokenize", {"prompt": text, "return_token_strs": True})
            self.assertEqual(answer["count"], len(answer["tokens"]))
            self.assertEqual(len(answer["token_strs"]), answer["count"])
            self.assertEqual(self.post("/detokenize", {"tokens": answer["tokens"]}), {"prompt": text})

    def test_a_chat(self):
        answer = self.post("/tokenize", {"messages": QUESTION})
        self.assertEqual(self.post("/detokenize", {"tokens": answer["tokens"]})["prompt"],
                         "<|im_start|>user\ndefine apple<|im_end|>\n<|im_start|>assistant\n")


if __name__ == "__main__":
    unittest.main()
