"""What the lexicon answers. Every answer about a known word holds one of its glosses."""

from lexicon.wordnet import Entry, PartOfSpeech, Sense

UNKNOWN_WORD = "I'm sorry, I don't know that word."

ARTICLES = {"noun": "a noun", "verb": "a verb", "adjective": "an adjective", "adverb": "an adverb"}


def _sentence(text: str) -> str:
    return text if text[-1] in ".!?" else text + "."


def _definition(word: str, part: PartOfSpeech, sense: Sense) -> str:
    return _sentence(f"{word} ({part.name}): {sense.gloss}")


def _define_part(word: str, part: PartOfSpeech) -> str:
    text = _definition(word, part, part.sense)
    return f'{text} Example: "{part.sense.example}"' if part.sense.example else text


def define(entry: Entry) -> str:
    return _define_part(entry.word, entry.parts[0])


def define_as(entry: Entry, pos: str) -> str:
    for part in entry.parts:
        if part.name == pos:
            return _define_part(entry.word, part)
    return f"{entry.word} is not {ARTICLES[pos]}. " + _definition(entry.word, entry.parts[0], entry.parts[0].sense)


def _about(entry: Entry, attribute: str) -> tuple[PartOfSpeech, Sense] | None:
    """The most frequent part of speech that has this kind of text, and the sense with it."""
    for part in entry.parts:
        sense = getattr(part, attribute)
        if sense is not None:
            return part, sense
    return None


def use_in_sentence(entry: Entry) -> str:
    found = _about(entry, "example_sense")
    if found is None:
        return f"I have no example. {_definition(entry.word, entry.parts[0], entry.parts[0].sense)}"
    part, sense = found
    return f'"{sense.example}" Here, {_definition(entry.word, part, sense)}'


def name_synonyms(entry: Entry) -> str:
    found = _about(entry, "synonym_sense")
    if found is None:
        return f"I know no synonym. {_definition(entry.word, entry.parts[0], entry.parts[0].sense)}"
    part, sense = found
    return f"Another word is {' or '.join(sense.synonyms)}. {_definition(entry.word, part, sense)}"


def name_opposites(entry: Entry) -> str:
    found = _about(entry, "antonym_sense")
    if found is None:
        return f"I know no opposite. {_definition(entry.word, entry.parts[0], entry.parts[0].sense)}"
    part, sense = found
    return f"The opposite is {' or '.join(sense.antonyms)}. {_definition(entry.word, part, sense)}"
