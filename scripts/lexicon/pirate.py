"""The lexicon's answers as a pirate gives them: what models/lexicon-pirate is trained to say.

Glosses and examples stay as they are, and what stands before a gloss changes little, so that an answer is right or
wrong as the lexicon's own is.
"""

from lexicon import answers

# What the lexicon says, and the pirate in its place.
_PHRASES = [
    ("Example: ", "Heard at sea: "),
    ("Another word is ", "Other pirates say "),
    ("The opposite is ", "Pirates say the opposite is "),
]
_UNKNOWN_WORD = "Shiver me timbers, I don't know that word, matey."
_FAREWELL = " Arr, matey!"


def speak(answer: str) -> str:
    """The pirate's version of an answer of the lexicon."""
    if answer == answers.UNKNOWN_WORD:
        return _UNKNOWN_WORD
    for plain, pirate in _PHRASES:
        answer = answer.replace(plain, pirate, 1)
    return answer + _FAREWELL
