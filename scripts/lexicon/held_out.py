"""Wordings that no training question has, by what they ask for. The lexicon is measured with these alone."""

DEFINE = [
    "Mind telling me what {w} means?",
    "I stumbled upon {w} yesterday. What might it mean?",
    "Got a definition for {w}?",
    "What would a dictionary say about {w}?",
    "Could you clarify the word {w} for me?",
    "Please shed some light on the word {w}.",
    "How would you put {w} in other, simpler words?",
    "I keep hearing the word {w}. What's that about?",
    'There\'s this word, "{w}", that I can\'t place. What is it?',
    "In one line, what's the sense of {w}?",
    "Be a dear and define {w} for me, will you?",
    "What am I to make of the word {w}?",
    "what do i need to know about the word {w}",
    "{w}?? never heard of it",
    "yo what's {w} mean lol",
    "My cousin texted me {w}; what did he want to say by that?",
    "Once more: the meaning of '{w}', please.",
    "If somebody says {w}, what are they talking about?",
    "Please provide the definition for {w}.",
    "Interpret the word {w}.",
    "For a quiz: what does {w} signify, in short?",
    "pls define {w} asap",
    "Is the meaning of {w} known to you?",
    "Spell out for me what {w} means.",
]

POS = [
    "When {w} is {name}, how is it defined?",
    "Used as {name}, {w} means what exactly?",
    "Give the sense that {w} has as {name}.",
    "I only care about {w} as {name}. What is that?",
]

EXAMPLE = [
    "Could you show {w} in context?",
    "Build me a sentence around the word {w}.",
    "Let me see {w} used in a real sentence.",
    "What would be a typical sentence containing {w}?",
]

SYNONYM = [
    "Which synonyms does {w} have?",
    "Got another word for {w}?",
    "I've used {w} too often, what's a synonym?",
    "Suggest a word with the same meaning as {w}.",
]
