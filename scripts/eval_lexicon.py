#!/usr/bin/env python3
"""Measures models/lexicon, greedy and in fp32, on wordings that training never used.

    scripts/train_lexicon.py prepare --model /tmp/unused    # the dictionary, from WordNet
    scripts/eval_lexicon.py

An answer counts as right if it contains one sense's gloss up to its first semicolon. Needs torch and transformers.
"""

import argparse
import collections
import pathlib
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from lexicon import answers, held_out  # noqa: E402
from lexicon.conversations import WordMaker, answer, split_other_words  # noqa: E402
from lexicon.wordnet import Lexicon  # noqa: E402


class Model:
    """Greedy answers to single questions."""

    def __init__(self, folder: pathlib.Path, device: str, batch_size: int):
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().to(device).eval()
        self._device, self._batch_size = device, batch_size

    def _answer_batch(self, questions: list[str]) -> list[str]:
        prompts = [
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
            )
            for q in questions
        ]
        batch = self._tokenizer(prompts, return_tensors="pt", padding=True).to(self._device)
        with torch.inference_mode():
            out = self._model.generate(**batch, do_sample=False, max_new_tokens=128)
        return self._tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)

    def answer(self, questions: list[str]) -> list[str]:
        texts = []
        for at in range(0, len(questions), self._batch_size):
            texts += self._answer_batch(questions[at : at + self._batch_size])
        return texts


def has_gloss(text: str, entry) -> bool:
    return any(gloss in text for gloss in entry.first_glosses)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} % of {whole}"


def measure_definitions(model: Model, entries, per_word: int, title: str) -> None:
    rng = random.Random(title)
    asked = [(entry, wording) for entry in entries for wording in rng.sample(held_out.DEFINE, per_word)]
    texts = model.answer([wording.replace("{w}", entry.word) for entry, wording in asked])
    right, unknown, missed = 0, 0, collections.Counter()
    failures = []
    for (entry, wording), text in zip(asked, texts):
        good = has_gloss(text, entry)
        right += good
        unknown += text == answers.UNKNOWN_WORD
        if not good:
            missed[wording] += 1
            failures.append((wording.replace("{w}", entry.word), text))
    print(f"{title}: right {percent(right, len(asked))}; wrongly unknown {percent(unknown, len(asked))}", flush=True)
    for wording, count in missed.most_common(5):
        print(f"    {count} missed: {wording}")
    for question, text in rng.sample(failures, min(6, len(failures))):
        print(f"    {question} -> {text}")


def measure_exact(model: Model, entries, wordings: list[str], what: str) -> None:
    """How many answers are, to the letter, what the dictionary has."""
    rng = random.Random(what)
    asked = []
    for entry in entries:
        pos = rng.choice(entry.parts).name
        question = rng.choice(wordings).replace("{w}", entry.word).replace("{name}", answers.ARTICLES[pos])
        asked.append((entry, question, answer(entry, what, pos)))
    texts = model.answer([question for _, question, _ in asked])
    exact = sum(text == wanted for (_, _, wanted), text in zip(asked, texts))
    glosses = sum(has_gloss(text, entry) for (entry, _, _), text in zip(asked, texts))
    print(f"{what}: exactly right {percent(exact, len(asked))}; with a gloss {percent(glosses, len(asked))}", flush=True)


def measure_unknown(model: Model, words: list[str], title: str) -> None:
    rng = random.Random(title)
    texts = model.answer([rng.choice(held_out.DEFINE).replace("{w}", word) for word in words])
    unknown = sum(text == answers.UNKNOWN_WORD for text in texts)
    print(f"{title}: answered as unknown {percent(unknown, len(words))}", flush=True)
    for word, text in [(w, t) for w, t in zip(words, texts) if t != answers.UNKNOWN_WORD][:5]:
        print(f"    {word} -> {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "lexicon")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "lexicon-data")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--wordings", type=int, default=1, help="held-out wordings asked of each word")
    parser.add_argument("--sample", type=int, default=1000, help="questions of each measure but the first")
    args = parser.parse_args()

    lexicon = Lexicon.load(args.data / "lexicon.json")
    model = Model(args.model, args.device, args.batch_size)
    entries, rng = lexicon.entries, random.Random(0)
    top = entries[:2000]
    measure_definitions(model, top, args.wordings, "Definitions of the 2,000 most frequent words")
    for first, last in [(2000, 10000), (10000, len(entries))]:
        sample = rng.sample(entries[first:last], args.sample)
        measure_definitions(model, sample, 1, f"Definitions of words {first + 1:,} to {last:,}")
    sample = rng.sample(top, min(args.sample, len(top)))
    measure_exact(model, sample, held_out.POS, "part")
    measure_exact(model, sample, held_out.EXAMPLE, "example")
    measure_exact(model, sample, held_out.SYNONYM, "synonym")
    maker = WordMaker(lexicon)
    measure_unknown(model, [maker.make(rng, held_out=True) for _ in range(args.sample)], "Made-up words")
    others = rng.sample(split_other_words(lexicon)[1], args.sample)
    measure_unknown(model, others, "Real words outside the lexicon")


if __name__ == "__main__":
    main()
