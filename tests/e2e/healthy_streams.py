"""Streams that go on beside what a test does to the server, each held against what it gives alone."""

import concurrent.futures
import threading

CHAT = "/v1/chat/completions"
WORDS = ["apple", "candid", "run", "happy", "tree", "river"]


class HealthyStreams:
    """Six clients that ask the same questions over and over from construction until end()."""

    def __init__(self, server):
        self.server = server
        self.words = WORDS
        self.expected = {word: self.tokens(word) for word in self.words}
        self.stop = threading.Event()
        self.finished = 0
        self.pool = concurrent.futures.ThreadPoolExecutor(len(self.words))
        self.futures = [self.pool.submit(self.go_on, word) for word in self.words]

    def tokens(self, word):
        tokens = []
        for event in self.server.stream(CHAT, {"messages": [{"role": "user", "content": f"define {word}"}],
                                               "temperature": 0, "max_tokens": 40, "return_token_ids": True}):
            if "error" in event:
                raise AssertionError(f"{word}: {event}")
            tokens += [token for choice in event["choices"] for token in choice.get("token_ids") or []]
        return tokens

    def go_on(self, word):
        while not self.stop.is_set():
            tokens = self.tokens(word)
            if tokens != self.expected[word]:
                raise AssertionError(f"{word}: {tokens} instead of {self.expected[word]}")
            self.finished += 1

    def end(self):
        """Raises what went wrong with a stream."""
        self.stop.set()
        for future in self.futures:
            future.result()
        self.pool.shutdown()
