"""Reads WordNet 3.0's database files and reduces them to dictionary entries.

An entry is one lemma with, for each part of speech, the texts an answer is made from. The formats of the files are
described in WordNet's wndb(5WN), cntlist(5WN) and senseidx(5WN).
"""

import collections
import dataclasses
import json
import pathlib
import re

POS_NAMES = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb"}
_POS_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
# The digit after % in a sense key; 5 is an adjective satellite, which index.adj lists among the adjectives.
_SENSE_KEY_POS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}

# Longer texts would push an answer past 80 tokens.
_MAX_GLOSS_CHARS = 100
_MAX_FIRST_PART_CHARS = 170
_MAX_EXAMPLE_CHARS = 120
_MAX_SYNONYMS = 3


@dataclasses.dataclass
class Sense:
    """One meaning of a lemma. `gloss` starts with the WordNet gloss up to its first semicolon, verbatim."""

    gloss: str
    example: str | None
    synonyms: list[str]
    antonyms: list[str]


@dataclasses.dataclass
class PartOfSpeech:
    """A lemma as a noun, verb, adjective or adverb: the sense to define, and those with the best other texts."""

    name: str
    sense: Sense
    example_sense: Sense | None
    synonym_sense: Sense | None
    antonym_sense: Sense | None


@dataclasses.dataclass
class Entry:
    """A lemma. `parts` is ordered by how frequent its commonest sense is; `first_glosses` has all senses' glosses
    up to the first semicolon, which is what an answer is judged by."""

    word: str
    count: int
    parts: list[PartOfSpeech]
    first_glosses: list[str]
    inflections: list[str]


@dataclasses.dataclass
class Lexicon:
    """The entries, most frequent first, and the WordNet lemmas that are not among them."""

    entries: list[Entry]
    other_words: list[str]

    def save(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), ensure_ascii=False), encoding="utf-8")

    @staticmethod
    def load(path: pathlib.Path) -> "Lexicon":
        raw = json.loads(path.read_text(encoding="utf-8"))

        def sense(value):
            return None if value is None else Sense(**value)

        entries = []
        for item in raw["entries"]:
            parts = [
                PartOfSpeech(
                    name=part["name"],
                    sense=sense(part["sense"]),
                    example_sense=sense(part["example_sense"]),
                    synonym_sense=sense(part["synonym_sense"]),
                    antonym_sense=sense(part["antonym_sense"]),
                )
                for part in item["parts"]
            ]
            entries.append(Entry(**{**item, "parts": parts}))
        return Lexicon(entries, raw["other_words"])


@dataclasses.dataclass
class _Synset:
    words: list[str]
    gloss: str
    antonyms: dict[int, list[tuple[str, str, int]]]


def _display(word: str) -> str:
    return re.sub(r"\((a|p|ip)\)$", "", word).replace("_", " ")


def _parse_synset(line: str) -> _Synset:
    data, gloss = line.split(" | ", 1)
    fields = data.split()
    word_count = int(fields[3], 16)
    words = [_display(fields[4 + 2 * i]) for i in range(word_count)]
    antonyms = collections.defaultdict(list)
    at = 4 + 2 * word_count
    for i in range(int(fields[at])):
        symbol, offset, pos, source_target = fields[at + 1 + 4 * i : at + 5 + 4 * i]
        if symbol == "!":
            source, target = int(source_target[:2], 16), int(source_target[2:], 16)
            antonyms[source].append((pos, offset, target))
    return _Synset(words, gloss.strip(), antonyms)


def _read_synsets(folder: pathlib.Path) -> dict[tuple[str, str], _Synset]:
    synsets = {}
    for pos, name in _POS_FILES.items():
        for line in (folder / f"data.{name}").read_text(encoding="utf-8").splitlines():
            if not line.startswith(" "):
                synsets[pos, line[:8]] = _parse_synset(line)
    return synsets


def _read_index(folder: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    """lemma -> part of speech -> synset offsets in the order of their sense numbers."""
    index = collections.defaultdict(dict)
    for pos, name in _POS_FILES.items():
        for line in (folder / f"index.{name}").read_text(encoding="utf-8").splitlines():
            if not line.startswith(" "):
                fields = line.split()
                index[fields[0]][pos] = fields[-int(fields[2]) :]
    return index


def _read_counts(folder: pathlib.Path) -> dict[str, dict[tuple[str, int], int]]:
    """lemma -> (part of speech, sense number from 0) -> how often the sense was tagged."""
    counts = collections.defaultdict(dict)
    for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines():
        key, sense_number, count = line.split()
        lemma, lexical = key.split("%")
        sense = (_SENSE_KEY_POS[lexical[0]], int(sense_number) - 1)
        counts[lemma][sense] = counts[lemma].get(sense, 0) + int(count)
    return counts


def first_gloss(gloss: str) -> str:
    """The gloss up to its first semicolon."""
    return gloss.split(";")[0].strip()


def _definition(gloss: str) -> str:
    """The first part of a gloss, and as many more of its parts before the examples as stay short."""
    parts = [part.strip() for part in gloss.split(";")]
    text = parts[0]
    for part in parts[1:]:
        if '"' in part or not part or len(text) + len(part) > _MAX_GLOSS_CHARS:
            break
        text += "; " + part
    return text


def _stem(word: str) -> str:
    """What an inflected form of the word still contains, roughly: for choosing examples that show the word."""
    head = word.lower().split(" ")[0]
    return head if len(head) <= 3 else head[:-1] if head[-1] in "ey" else head


def _example(gloss: str, word: str) -> str | None:
    shows_word = re.compile(r"\b" + re.escape(_stem(word)))
    for example in re.findall(r'"([^"]+)"', gloss):
        example = example.strip()
        if len(example) <= _MAX_EXAMPLE_CHARS and " " in example and shows_word.search(example.lower()):
            example = example[0].upper() + example[1:]
            return example if example[-1] in ".!?" else example + "."
    return None


def _unique(words: list[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _make_sense(synsets, pos: str, offset: str, lemma: str) -> tuple[str, Sense]:
    synset = synsets[pos, offset]
    lemma = lemma.replace("_", " ")
    display = next((w for w in synset.words if w.lower() == lemma), lemma)
    number = 1 + next((i for i, w in enumerate(synset.words) if w.lower() == lemma), 0)
    antonyms = []
    for target_pos, target_offset, target in synset.antonyms.get(number, []):
        antonyms.append(synsets["a" if target_pos == "s" else target_pos, target_offset].words[target - 1])
    sense = Sense(
        gloss=_definition(synset.gloss),
        example=_example(synset.gloss, display),
        synonyms=_unique([w for w in synset.words if w.lower() != lemma])[:_MAX_SYNONYMS],
        antonyms=_unique(antonyms)[:2],
    )
    return display, sense


def _make_part(pos: str, senses: list[Sense]) -> PartOfSpeech:
    """`senses` is ordered by frequency."""
    short = [s for s in senses if len(first_gloss(s.gloss)) <= _MAX_FIRST_PART_CHARS]
    if not short:
        short = [min(senses, key=lambda s: len(s.gloss))]
    return PartOfSpeech(
        name=POS_NAMES[pos],
        sense=short[0],
        example_sense=next((s for s in short if s.example), None),
        synonym_sense=next((s for s in short if s.synonyms), None),
        antonym_sense=next((s for s in short if s.antonyms), None),
    )


def _regular_inflections(word: str, pos: str) -> list[str]:
    if len(word) < 3 or not word.isalpha() or not word.islower() or word.endswith("s"):
        return []
    vowel_before = word[-2] in "aeiou"
    if word.endswith("y") and not vowel_before:
        plural, past = word[:-1] + "ies", word[:-1] + "ied"
    else:
        plural = word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")
        past = word + ("d" if word.endswith("e") else "ed")
    if pos == "n":
        return [plural]
    if pos == "v":
        gerund = word[:-1] + "ing" if word.endswith("e") and not word.endswith("ee") else word + "ing"
        return [plural, past, gerund]
    return []


def _read_exceptions(folder: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    """part of speech -> lemma -> its irregular forms."""
    exceptions = {}
    for pos, name in _POS_FILES.items():
        forms = collections.defaultdict(list)
        for line in (folder / f"{name}.exc").read_text(encoding="utf-8").splitlines():
            form, *lemmas = line.split()
            if "_" not in form:
                for lemma in lemmas:
                    forms[lemma].append(form)
        exceptions[pos] = forms
    return exceptions


def _inflections(lemma: str, display: str, poses: list[str], exceptions, index) -> list[str]:
    forms = []
    for pos in poses:
        forms += exceptions[pos].get(lemma) or _regular_inflections(display, pos)
    return [form for form in _unique(forms) if form not in index]


def _make_entry(lemma: str, counts, index, synsets, exceptions) -> Entry:
    ranked = []
    for pos, offsets in index[lemma].items():
        by_count = sorted(range(len(offsets)), key=lambda i: -counts.get((pos, i), 0))
        made = [_make_sense(synsets, pos, offsets[i], lemma) for i in by_count]
        ranked.append((-counts.get((pos, by_count[0]), 0), made[0][0], pos, [sense for _, sense in made]))
    ranked.sort(key=lambda item: item[0])
    display = ranked[0][1]
    return Entry(
        word=display,
        count=sum(counts.values()),
        parts=[_make_part(pos, senses) for _, _, pos, senses in ranked],
        first_glosses=_unique([first_gloss(s.gloss) for _, _, _, senses in ranked for s in senses]),
        inflections=_inflections(lemma, display, [pos for _, _, pos, _ in ranked], exceptions, index),
    )


def read_wordnet(folder: pathlib.Path) -> Lexicon:
    """All lemmas that cntlist.rev counts, most frequent first (ties in alphabetical order).

    Some 500 of the counted lemmas ("consist of", "else") have no entry in the database, so nothing defines them.
    """
    synsets, index, counts = _read_synsets(folder), _read_index(folder), _read_counts(folder)
    exceptions = _read_exceptions(folder)
    lemmas = sorted(counts.keys() & index.keys(), key=lambda lemma: (-sum(counts[lemma].values()), lemma))
    entries = [_make_entry(lemma, counts[lemma], index, synsets, exceptions) for lemma in lemmas]
    others = sorted(lemma.replace("_", " ") for lemma in index if lemma not in counts and not any(map(str.isdigit, lemma)))
    return Lexicon(entries, others)
