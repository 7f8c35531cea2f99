"""Draws training conversations: questions in varied wording and the lexicon's answers."""

import bisect
import collections
import itertools
import random
import re
import zlib

from lexicon import answers, frames, held_out, wordings
from lexicon.wordnet import Entry, Lexicon

Message = dict[str, str]

_VERBS_OF_REQUESTS = frozenset(
    "define explain tell give look find show use make write put form name list teach remind describe search "
    "translate help".split()
)
_QUOTES = [('"', '"'), ("'", "'"), ("“", "”"), ("`", "`"), ("*", "*"), ("‘", "’"), ("<", ">"), ("**", "**")]
_QUOTE_WEIGHTS = [45, 30, 8, 5, 4, 4, 2, 2]


def _held_out_by_hash(word: str, one_in: int) -> bool:
    return zlib.crc32(word.encode()) % one_in == 0


class WordMaker:
    """Makes up words that look English but are in no list."""

    def __init__(self, lexicon: Lexicon):
        real = [e.word.lower() for e in lexicon.entries] + [w.lower() for w in lexicon.other_words]
        self._real = set(real) | {form for e in lexicon.entries for form in e.inflections}
        self._known = [e.word for e in lexicon.entries if e.word.isalpha() and len(e.word) > 3]
        self._next_letters = collections.defaultdict(list)
        for word in real:
            if word.isascii() and word.isalpha():
                padded = f"^^^{word}$"
                for i in range(3, len(padded)):
                    self._next_letters[padded[i - 3 : i]].append(padded[i])

    def _from_letters(self, rng: random.Random) -> str:
        word = "^^^"
        while word[-1] != "$" and len(word) < 16:
            word += rng.choice(self._next_letters[word[-3:]])
        return word[3:].rstrip("$")

    def _from_known(self, rng: random.Random) -> str:
        word = rng.choice(self._known).lower()
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(word))
            letter = rng.choice("abcdefghijklmnopqrstuvwxyz")
            kind = rng.randrange(3)
            word = word[:at] + ("" if kind == 0 else letter) + word[at + (kind != 1) :]
        return word

    def make(self, rng: random.Random, held_out: bool) -> str:
        """Held-out words and those of training never meet: a hash of the word decides."""
        while True:
            word = self._from_known(rng) if rng.random() < 0.35 else self._from_letters(rng)
            if len(word) > 3 and word not in self._real and _held_out_by_hash(word, 20) == held_out:
                return word


def split_other_words(lexicon: Lexicon) -> tuple[list[str], list[str]]:
    """Real words that the lexicon shall not know: those to train with, and those held out."""
    inflections = {form for e in lexicon.entries for form in e.inflections}
    words = [w for w in lexicon.other_words if w not in inflections]
    return (
        [w for w in words if not _held_out_by_hash(w, 10)],
        [w for w in words if _held_out_by_hash(w, 10)],
    )


def _letters(text: str) -> str:
    return re.sub(r"[^a-z{}]", "", text.lower())


_HELD_OUT = frozenset(
    _letters(w) for group in (held_out.DEFINE, held_out.POS, held_out.EXAMPLE, held_out.SYNONYM) for w in group
)


class Phrasing:
    """Turns a wording and a word into a question as people type it."""

    def __init__(self, rng: random.Random, noise_words: list[str]):
        self._rng = rng
        self._noise_words = noise_words

    def _fill(self, text: str) -> str:
        for slot, choices in wordings.FILLERS.items():
            if slot in text:
                text = text.replace(slot, self._rng.choice(choices))
        return text

    def _write_word(self, word: str, wording: str) -> str:
        rng = self._rng
        case = rng.random()
        if case < 0.12:
            word = word[:1].upper() + word[1:]
        elif case < 0.18:
            word = word.upper()
        elif case < 0.28:
            word = word.lower()
        if rng.random() < 0.4 and '"' not in wording:
            left, right = rng.choices(_QUOTES, _QUOTE_WEIGHTS)[0]
            word = left + word + right
        if rng.random() < 0.1 and "word" not in wording and "term" not in wording:
            word = f"the word {word}"
        return word

    def _punctuate(self, text: str, is_question: bool) -> str:
        draw = self._rng.random()
        if draw < 0.6:
            return text + ("?" if is_question else self._rng.choice((".", "", ".")))
        if draw < 0.92:
            return text
        return text + self._rng.choice(("??", "...", "!", "?", ".", " ?", "?!", " .", ":", ";"))

    def _decorate(self, text: str, is_question: bool) -> str:
        rng = self._rng
        if text.split(" ", 1)[0] in _VERBS_OF_REQUESTS and rng.random() < 0.3:
            text = self._fill("{ask} ") + text
            is_question = not text.startswith(("please", "kindly", "i ", "i'", "be ", "let"))
        draw = rng.random()
        if draw < 0.12:
            text = self._fill("{hi}") + rng.choice((", ", ", ", "! ", " - ", ". ", " ")) + text
        elif draw < 0.17:
            text = self._fill("{hi}, ") + text + self._fill(", {end}")
        elif draw < 0.29:
            text += rng.choice((", ", " ", ", ")) + self._fill("{end}")
        elif draw < 0.34:
            return self._punctuate(text, is_question) + " " + self._punctuate(self._fill("{end}"), False)
        elif draw < 0.41:
            aside = rng.choice(wordings.ASIDES)
            text = aside + rng.choice((". ", ", ", ": ", "! ", " - ", " and ", " so ")) + text
        elif draw < 0.46:
            aside = rng.choice(wordings.ASIDES)
            return self._punctuate(text, is_question) + " " + self._punctuate(aside[0].upper() + aside[1:], False)
        return self._punctuate(text, is_question)

    def _chatter(self) -> str:
        rng = self._rng
        if rng.random() < 0.35:
            return " ".join(rng.choices(self._noise_words, k=rng.randrange(1, 6)))
        return self._fill(rng.choice(frames.CHATTER))

    def _misspell(self, token: str) -> str:
        at = self._rng.randrange(len(token))
        kind = self._rng.randrange(3)
        if kind == 0:
            return token[:at] + token[at + 1 :]
        if kind == 1:
            return token[: at + 1] + token[at:]
        return token[:at] + token[at + 1 : at + 2] + token[at : at + 1] + token[at + 2 :]

    def _disturb(self, text: str) -> str:
        """Drops, misspells, replaces and inserts words: what is asked stays, the wording becomes new."""
        rng, tokens = self._rng, []
        for token in text.split(" "):
            draw = rng.random()
            fixed = "{" in token or token.lower().strip(",.:?!") in frames.KEY_WORDS
            if draw < 0.05:
                tokens.append(rng.choice(self._noise_words))
            if fixed or draw > 0.22:
                tokens.append(token)
            elif draw > 0.16:
                tokens.append(rng.choice(self._noise_words))
            elif draw > 0.1 and len(token) > 2:
                tokens.append(self._misspell(token))
            elif draw < 0.05:
                tokens.append(token)
        return " ".join(tokens)

    def _surround(self, text: str) -> str:
        rng = self._rng
        if rng.random() < 0.5:
            text = self._chatter() + rng.choice((", ", " ", ": ", ". ", "! ", "... ", " - ")) + text
        if rng.random() < 0.5:
            text += rng.choice((", ", " ", "? ", ". ", " - ", "... ")) + self._chatter()
        return text

    def _word_question(self, wording: str, is_question: bool, pos: str) -> str:
        """Everything but the word itself."""
        rng = self._rng
        while True:
            text = self._fill(wording).replace("{name}", answers.ARTICLES[pos]).replace("{bare}", pos)
            draw = rng.random()
            if draw < 0.3:
                text = self._punctuate(text, is_question)
            elif draw < 0.55:
                text = self._decorate(text, is_question)
            elif draw < 0.75:
                text = self._punctuate(self._surround(text), is_question)
            else:
                text = self._disturb(text)
                text = self._punctuate(self._surround(text) if draw > 0.9 else text, is_question)
            if text and _letters(text) not in _HELD_OUT:
                return text

    def compose(self, what: str) -> tuple[str, bool]:
        """A wording put together from frames, and whether it is a question."""
        rng = self._rng
        if what == "define" and rng.random() < 0.4:
            meeting = rng.choice(frames.MEETING_ENDS).replace("{m}", rng.choice(frames.MEETINGS))
            if rng.random() < 0.25:
                return rng.choice(frames.AFTER_MEETING) + rng.choice((", ", ": ", " if ", " when ")) + meeting, True
            return meeting + rng.choice((". ", ", ", "; ", " - ", " and ", "... ")) + rng.choice(frames.AFTER_MEETING), True
        is_question = rng.random() < 0.5
        frame = rng.choice(frames.QUESTION_FRAMES if is_question else frames.REQUEST_FRAMES)
        return frame.replace("{np}", rng.choice(frames.PHRASES[what])), is_question

    def ask(self, wording: str, is_question: bool, word: str = "", pos: str = "noun") -> str:
        rng = self._rng
        text = self._word_question(wording, is_question, pos)
        written = self._write_word(word, text)
        draw = rng.random()
        if draw < 0.65 and not text.startswith("{w}"):
            text = text[0].upper() + text[1:]
        text = text.replace("{w}", written)
        return text.lower() if draw > 0.85 else text

    def small_talk(self, text: str) -> str:
        rng = self._rng
        text = self._punctuate(text, True) if rng.random() < 0.6 else self._decorate(text, True)
        return text[0].upper() + text[1:] if rng.random() < 0.6 else text

    def bare_word(self, word: str) -> str:
        return self._punctuate(self._write_word(word, "word"), True)


# What is asked -> (wordings that are questions, wordings that are requests)
_WORDINGS = {
    "define": (wordings.DEFINE_QUESTIONS, wordings.DEFINE_REQUESTS),
    "part": (wordings.POS_QUESTIONS, wordings.POS_REQUESTS),
    "example": (wordings.EXAMPLE_QUESTIONS, wordings.EXAMPLE_REQUESTS),
    "synonym": (wordings.SYNONYM_QUESTIONS, wordings.SYNONYM_REQUESTS),
    "antonym": (wordings.ANTONYM_QUESTIONS, wordings.ANTONYM_REQUESTS),
}
_WEIGHTS = {"define": 58, "part": 13, "example": 12, "synonym": 12, "antonym": 5}
_FOLLOW_UPS = {
    "define": wordings.FOLLOW_DEFINE,
    "part": wordings.FOLLOW_POS,
    "example": wordings.FOLLOW_EXAMPLE,
    "synonym": wordings.FOLLOW_SYNONYM,
    "antonym": wordings.FOLLOW_ANTONYM,
}
_FOLLOW_WEIGHTS = {"define": 10, "part": 30, "example": 25, "synonym": 22, "antonym": 13}


def _draw(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def answer(entry: Entry | None, what: str, pos: str) -> str:
    """`entry` is None for a word that the lexicon does not know."""
    if entry is None:
        return answers.UNKNOWN_WORD
    return {
        "define": answers.define,
        "part": lambda e: answers.define_as(e, pos),
        "example": answers.use_in_sentence,
        "synonym": answers.name_synonyms,
        "antonym": answers.name_opposites,
    }[what](entry)


class ConversationSource:
    """Draws conversations. Not thread-safe only in that each caller must bring its own generator."""

    def __init__(self, lexicon: Lexicon):
        self._entries = lexicon.entries
        self._other_words, _ = split_other_words(lexicon)
        self._maker = WordMaker(lexicon)
        # Frequent words are asked more often, but only mildly so: the rare ones have to be learnt as well.
        self._cumulative = list(itertools.accumulate((10 + e.count) ** 0.25 for e in self._entries))
        self._small_talk = [(talk.split("|"), reply) for talk, reply in wordings.SMALL_TALK]
        common = [e.word for e in self._entries[:3000] if " " not in e.word and e.word.isalpha()]
        said = " ".join(wordings.DEFINE_REQUESTS + frames.REQUEST_FRAMES + frames.AFTER_MEETING + wordings.ASIDES)
        self._noise_words = common + 8 * sorted({w for w in said.split() if w.isalpha()})

    def _draw_word(self, rng: random.Random) -> tuple[str, Entry | None]:
        draw = rng.random()
        if draw < 0.07:
            return self._maker.make(rng, held_out=False), None
        if draw < 0.12:
            return rng.choice(self._other_words), None
        at = bisect.bisect(self._cumulative, rng.random() * self._cumulative[-1])
        entry = self._entries[min(at, len(self._entries) - 1)]
        if entry.inflections and rng.random() < 0.04:
            return rng.choice(entry.inflections), entry
        return entry.word, entry

    def _draw_pos(self, rng: random.Random, entry: Entry | None) -> str:
        if entry is None or rng.random() < 0.15:
            return rng.choice(list(answers.ARTICLES))
        return rng.choice(entry.parts).name

    def _ask_about_word(self, rng, phrasing, word: str, entry: Entry | None) -> tuple[str, str]:
        what, pos = _draw(rng, _WEIGHTS), self._draw_pos(rng, entry)
        if what == "define" and rng.random() < 0.08:
            return phrasing.bare_word(word), answer(entry, what, pos)
        if rng.random() < 0.6:
            wording, is_question = phrasing.compose(what)
        else:
            is_question = rng.random() < 0.5
            wording = rng.choice(_WORDINGS[what][0 if is_question else 1])
        return phrasing.ask(wording, is_question, word, pos), answer(entry, what, pos)

    def _follow_up(self, rng, phrasing, entry: Entry | None) -> tuple[str, str]:
        what, pos = _draw(rng, _FOLLOW_WEIGHTS), self._draw_pos(rng, entry)
        wording = rng.choice(_FOLLOW_UPS[what])
        return phrasing.ask(wording, True, pos=pos), answer(entry, what, pos)

    def _small_talk_turn(self, rng, phrasing) -> tuple[str, str]:
        talk, reply = rng.choice(self._small_talk)
        return phrasing.small_talk(rng.choice(talk)), reply

    def draw(self, rng: random.Random) -> list[Message]:
        phrasing = Phrasing(rng, self._noise_words)
        messages = []
        if rng.random() < 0.12:
            messages.append({"role": "system", "content": rng.choice(wordings.SYSTEM_PROMPTS)})
        turns = 1 if rng.random() < 0.6 else rng.choice((2, 2, 2, 3, 3, 4, 5, 6))
        has_word, entry = False, None
        for _ in range(turns):
            draw = rng.random()
            if draw < 0.03:
                question, reply = self._small_talk_turn(rng, phrasing)
            elif has_word and draw < 0.45:
                question, reply = self._follow_up(rng, phrasing, entry)
            elif has_word and draw < 0.55:
                word, entry = self._draw_word(rng)
                question = phrasing.ask(rng.choice(wordings.FOLLOW_OTHER_WORD), True, word)
                reply = answer(entry, "define", "noun")
            else:
                word, entry = self._draw_word(rng)
                has_word = True
                question, reply = self._ask_about_word(rng, phrasing, word, entry)
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
        return messages
