"""Streams that go on beside what a test does to the server, each held against what it gives alone."""

import concurrent.futures
import threading
import time

from server_support import Refused

BEFORE_NEXT_TRY_S = 0.05

CHAT = "/v1/chat/completions"
WORDS = ["apple", "candid", "run", "happy", "tree", "river"]


class HealthyStreams:
    """Six clients that ask the same questions over and over from construction until end().

    `may_refuse`: statuses with which the server may put them off for a while.
    """

    def __init__(self, server, may_refuse=()):
        self.server = server
        self.may_refuse = may_refuse
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
            try:
                tokens = self.tokens(word)
            except Refused as refused:
                if refused.status not in self.may_refuse:
                    raise
                time.sleep(BEFORE_NEXT_TRY_S)
                continue
            if tokens != self.expected[word]:
                raise AssertionError(f"{word}: {tokens} instead of {self.expected[word]}")
            self.finished += 1

    def end(self):
        """Raises what went wrong with a stream."""
        self.stop.set()
        for future in self.futures:
            future.result()
        self.pool.shutdown()
