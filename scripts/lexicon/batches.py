"""Packs tokenised conversations into fixed-size training batches."""

import random

import numpy as np
import torch
from tokenizers import Tokenizer

from lexicon.conversations import ConversationSource
from lexicon.model_files import SPECIAL_TOKENS, render

IGNORED = -100


def _targets(ids: np.ndarray, start_id: int, end_id: int, assistant_id: int) -> np.ndarray:
    """The next token where it belongs to an answer (its <|im_end|> included), else IGNORED."""
    targets = np.full(len(ids), IGNORED, dtype=np.int64)
    ends = np.flatnonzero(ids == end_id)
    for start in np.flatnonzero(ids == start_id):
        if ids[start + 1] == assistant_id:
            end = ends[np.searchsorted(ends, start)]
            # start, start + 1 and start + 2 are <|im_start|>, "assistant" and the line end.
            targets[start + 2 : end] = ids[start + 3 : end + 1]
    return targets


class PackedBatches(torch.utils.data.Dataset):
    """Batch i depends on (seed, i) alone, so training sees the same data however many workers prepare it.

    An item is (ids, segments, targets), each [rows, length]: `segments` numbers the conversations of a row from 1, and
    is 0 on padding, so that attention can be kept within a conversation.
    """

    def __init__(self, source: ConversationSource, tokenizer_path: str, rows: int, length: int, count: int, seed: int):
        self._source = source
        self._tokenizer = Tokenizer.from_file(tokenizer_path)
        self._rows, self._length, self._count, self._seed = rows, length, count, seed
        self._start, self._end = (self._tokenizer.token_to_id(t) for t in SPECIAL_TOKENS[1:])
        self._pad = self._tokenizer.token_to_id(SPECIAL_TOKENS[0])
        assistant = self._tokenizer.encode("assistant").ids
        if len(assistant) != 1:
            raise SystemExit("The tokenizer must have 'assistant' as one token: answers are found by it.")
        self._assistant = assistant[0]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int):
        rng = random.Random(f"{self._seed}-{index}")
        shape = (self._rows, self._length)
        ids = np.full(shape, self._pad, dtype=np.int64)
        segments = np.zeros(shape, dtype=np.int64)
        targets = np.full(shape, IGNORED, dtype=np.int64)
        used, count = [0] * self._rows, [0] * self._rows
        first_open, misses = 0, 0
        while misses < 40:
            texts = [render(self._source.draw(rng)) for _ in range(64)]
            for encoding in self._tokenizer.encode_batch(texts):
                tokens = np.array(encoding.ids, dtype=np.int64)
                size = len(tokens)
                while first_open < self._rows and used[first_open] > self._length - 30:
                    first_open += 1
                candidates = range(first_open, min(first_open + 16, self._rows))
                row = next((r for r in candidates if used[r] + size <= self._length), None)
                if row is None:
                    misses += 1
                    # Nothing may block the window for ever: the fullest of these rows is closed instead.
                    if first_open + 16 < self._rows:
                        used[first_open] = self._length
                    continue
                at = slice(used[row], used[row] + size)
                count[row] += 1
                ids[row, at] = tokens
                segments[row, at] = count[row]
                targets[row, at] = _targets(tokens, self._start, self._end, self._assistant)
                used[row] += size
        return (
            torch.from_numpy(ids.astype(np.int32)),
            torch.from_numpy(segments.astype(np.int16)),
            torch.from_numpy(targets.astype(np.int32)),
        )
