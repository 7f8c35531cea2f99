"""The wordings of questions that the lexicon is trained on.

{w} is the word asked about, {name} a part of speech; {who}, {where}, {hi}, {ask} and {end} are filled from the lists
below. None of these wordings may be in held_out.py.
"""

FILLERS = {
    "{who}": "my teacher|my boss|my friend|my sister|my son|a colleague|my neighbour|someone|the doctor|my father|"
    "a student|the author|the reporter|my grandmother|he|she|they|a lawyer|somebody on the radio".split("|"),
    "{where}": "a book|a novel|the newspaper|a letter|an article|a poem|an email|a film|my homework|a report|a song|"
    "a crossword|a contract|class|a magazine|the news|an old text|a conversation|a podcast|a headline".split("|"),
    "{hi}": "hi|hello|hey|hi there|good morning|good evening|excuse me|sorry|ok|okay|so|well|um|right|hmm|"
    "quick question|one more question|a question|dear dictionary|hey there|greetings".split("|"),
    "{ask}": "can you|could you|could you please|can you please|would you|would you please|please|will you|"
    "i'd like you to|i want you to|i need you to|may i ask you to|kindly|be so kind as to|let's see if you can".split("|"),
    "{end}": "please|thanks|thank you|thanks a lot|in simple words|in plain English|in English|if you can|if possible|"
    "for me|i'm curious|i wonder|i forgot|briefly|exactly|actually|again|mate|i have no idea|many thanks|"
    "i'm learning English|it's for school|i never heard it before|just a short answer".split("|"),
}

DEFINE_QUESTIONS = """
what does {w} mean|what does the word {w} mean|what does the term {w} mean|what does {w} actually mean
what does {w} really mean|what is the meaning of {w}|what's the meaning of {w}|what is the meaning of the word {w}
what is the definition of {w}|what's the definition of {w}|what is {w}|what's {w}|whats {w}|what is meant by {w}
what do you understand by {w}|what is {w} supposed to mean|what does it mean if something is called {w}
what do people mean by {w}|what do they mean when they say {w}|what does one mean by {w}|what means {w}
what would {w} mean|what could {w} mean|what might {w} mean|what did {w} mean|what meaning does {w} have
what meaning has the word {w}|which meaning does {w} have|what sense does {w} have|what does {w} stand for
what does {w} refer to|what does {w} denote|what does {w} signify|what does {w} describe|what is a {w}|what is an {w}
what's a {w}|what are {w}|what kind of thing is {w}|what exactly is {w}|what exactly does {w} mean
what on earth does {w} mean|what the heck does {w} mean|what in the world is {w}|wat does {w} mean|whats {w} mean
what does "{w}" mean here|how would you define {w}|how do you define {w}|how is {w} defined|how would you explain {w}
how do you explain the word {w}|how should i understand {w}|how can {w} be defined|how does one define {w}
how would you describe {w}|do you know what {w} means|do you know the word {w}|do you know {w}
do you know the meaning of {w}|do you know what {w} is|do you happen to know what {w} means
can you define {w}|can you explain {w}|can you tell me what {w} means|could you tell me what {w} means
could you tell me the meaning of {w}|could you explain what {w} means|could you define the word {w}
can you give me the meaning of {w}|can you give me a definition of {w}|can i have the definition of {w}
can i get a definition of {w}|may i know what {w} means|may i ask what {w} means|may i have the meaning of {w}
would you explain the meaning of {w}|would you tell me what {w} means|would you define {w} for me
would you mind explaining {w}|would you mind telling me the meaning of {w}|is there a definition of {w}
does {w} mean anything|does the word {w} have a meaning|is {w} a word|is {w} an English word, and what does it mean
have you heard the word {w}|have you got the meaning of {w}|have you ever heard of {w}|who knows what {w} means
any idea what {w} means|any idea what {w} is|any clue what the word {w} means|{w} means what|{w} is what|{w}, what is it
{w}, what does it mean|{w}: what does that mean|{w} - what is that|the word {w}, what does it mean
{who} said {w}, what does that mean|{who} used the word {w}, what does it mean|{who} wrote {w}, what is that
{who} called it {w}, what does this mean|i read {w} in {where}, what does it mean|i saw {w} in {where}, what is it
i found the word {w} in {where}, what does it mean|in {where} it says {w}, what does that mean
when {who} says {w}, what is meant|there is the word {w} in {where}, what does it mean
""".strip().replace("\n", "|").split("|")

DEFINE_REQUESTS = """
define {w}|define the word {w}|define the term {w}|define: {w}|definition of {w}|definition: {w}|{w} definition
{w}: definition|def {w}|def of {w}|meaning of {w}|meaning of the word {w}|meaning: {w}|{w} meaning|{w} meaning in English
the meaning of {w}|the definition of {w}|word meaning {w}|explain {w}|explain the word {w}|explain the term {w}
explain the meaning of {w}|explain what {w} means|explain {w} to me|explain to me what {w} is|describe {w}
tell me what {w} means|tell me the meaning of {w}|tell me about {w}|tell me about the word {w}|tell me what {w} is
tell me the definition of {w}|give me the definition of {w}|give me a definition of {w}|give me the meaning of {w}
give a definition of {w}|give the meaning of {w}|give a short definition of {w}|give me the dictionary entry for {w}
look up {w}|look up the word {w}|look {w} up|look up {w} for me|look up the meaning of {w}|find the meaning of {w}
find the definition of {w}|search for {w}|show me the definition of {w}|show me the entry for {w}|show {w}|entry {w}
i want to know what {w} means|i want to know the meaning of {w}|i'd like to know what {w} means
i would like to know the meaning of {w}|i would like a definition of {w}|i'd like the definition of {w}
i need the definition of {w}|i need to know what {w} means|i need a definition for {w}|i don't know the word {w}
i do not know what {w} means|i don't know what {w} is|i don't understand {w}|i don't understand the word {w}
i do not understand what {w} means|i have never heard the word {w}|i've forgotten what {w} means
i can't remember what {w} means|i'm not sure what {w} means|i am not sure about the word {w}|i wonder what {w} means
i was wondering what {w} means|i was asked what {w} means|i am looking for the meaning of {w}
i'm looking for the definition of {w}|i have to explain the word {w}|i have to define {w} for {where}
i came across {w} in {where}|i came across the word {w}|i just heard {w}|i just read {w} in {where}
{who} said {w} and i don't know what it means|{who} used the word {w} and i didn't understand it
{who} asked me what {w} means|{who} wants to know what {w} means|{who} told me to look up {w}
we read {w} in {where} but nobody knows what it means|they keep saying {w} and i don't get it
teach me the word {w}|teach me what {w} means|remind me what {w} means|translate {w} into simple English
let me know what {w} means|help me with the word {w}|help, what's {w}|next word: {w}|word: {w}|the word is {w}|now {w}
dictionary: {w}|question: what does {w} mean|my question is what {w} means|today's word is {w}|{w} explained
""".strip().replace("\n", "|").split("|")

POS_QUESTIONS = """
{w} as {name}|what does {w} mean as {name}|what is {w} as {name}|what is the meaning of {w} as {name}
can {w} be {name}|is {w} {name}|as {name}, what does {w} mean|what does the {bare} {w} mean|what is the {bare} {w}
what's the meaning of the {bare} {w}|can i use {w} as {name}|and {w} as {name}|what does {w} mean when used as {name}
what does {w} mean when it's {name}|what does {w} mean if it is {name}|is there {name} {w}|could {w} be {name}
how would you define {w} as {name}|do you know {w} as {name}|what is the definition of {w} as {name}
""".strip().replace("\n", "|").split("|")

POS_REQUESTS = """
define {w} as {name}|define the {bare} {w}|the {bare} {w}|{w} ({bare})|{w}, {bare}|{w} {bare}|{bare}: {w}
explain {w} as {name}|explain the {bare} {w}|define {w} ({bare})|meaning of {w} as {name}|tell me about {w} as {name}
tell me what {w} means as {name}|give me the meaning of the {bare} {w}|definition of {w} as {name}
i mean {w} as {name}|i want to know what {w} means as {name}|i need {w} as {name}|look up {w} as {name}
""".strip().replace("\n", "|").split("|")

EXAMPLE_QUESTIONS = """
how do you use {w}|how do i use {w}|how is {w} used|how do you use {w} in a sentence|how can i use {w} in a sentence
how is the word {w} used in a sentence|can you use {w} in a sentence|could you use the word {w} in a sentence
can you give me an example of {w}|can you give me an example sentence with {w}|can you make a sentence with {w}
could you write a sentence with {w}|do you have an example of {w}|do you have an example sentence for {w}
what is an example of {w}|what's an example of how {w} is used|what is a sentence with {w}|what would a sentence with {w} be
would you use {w} in a sentence for me|is there an example for {w}|how would you use {w}|when do you use {w}
have you an example sentence for {w}|how does one use the word {w}|may i have an example with {w}
""".strip().replace("\n", "|").split("|")

EXAMPLE_REQUESTS = """
use {w} in a sentence|use the word {w} in a sentence|please use {w} in a sentence|make a sentence with {w}
make a sentence using {w}|make a sentence with the word {w}|write a sentence with {w}|write a sentence using the word {w}
give me a sentence with {w}|give me an example of {w}|give me an example sentence for {w}|give an example of {w}
give me an example of how to use {w}|give me an example with the word {w}|example of {w}|example sentence for {w}
an example for {w}|an example sentence with {w}|a sentence with {w}|a sentence using {w}|sentence with {w}|example: {w}
{w} in a sentence|{w} example|{w} example sentence|{w} used in a sentence|show me how to use {w}|show me an example of {w}
show me how {w} is used|show me a sentence with {w}|tell me a sentence with {w}|put {w} in a sentence
put the word {w} into a sentence|form a sentence with {w}|i need an example of {w}|i need a sentence with {w}
i'd like an example sentence with {w}|i want to see {w} in a sentence|i don't know how to use {w}
""".strip().replace("\n", "|").split("|")

SYNONYM_QUESTIONS = """
what is a synonym for {w}|what's a synonym for {w}|what is a synonym of {w}|what are synonyms of {w}
what are some synonyms for {w}|what are the synonyms of {w}|what is another word for {w}|what's another word for {w}
what other word is there for {w}|what other words mean {w}|what word means the same as {w}
which word means the same as {w}|which words are similar to {w}|what can i say instead of {w}
what can i write instead of {w}|what could i use instead of {w}|how else can i say {w}|how else could you say {w}
is there another word for {w}|is there a synonym for {w}|are there synonyms for {w}|do you know a synonym for {w}
do you know another word for {w}|can you give me a synonym for {w}|can you tell me a synonym of {w}
could you give me some synonyms of {w}|could you name another word for {w}|do you have a synonym for {w}
any synonyms for {w}|any other word for {w}
""".strip().replace("\n", "|").split("|")

SYNONYM_REQUESTS = """
a synonym for {w}|a synonym of {w}|synonym for {w}|synonym of {w}|synonyms for {w}|synonyms of {w}|synonyms: {w}
synonym: {w}|{w} synonym|{w} synonyms|another word for {w}|other words for {w}|another term for {w}
give me a synonym for {w}|give me synonyms of {w}|give me another word for {w}|give me some synonyms for {w}
tell me a synonym for {w}|tell me another word for {w}|name a synonym of {w}|name some synonyms for {w}
find a synonym for {w}|find me another word for {w}|list synonyms of {w}|i need a synonym for {w}
i need another word for {w}|i'm looking for a synonym of {w}|i'm looking for another word for {w}
i want a synonym for {w}|words like {w}|similar words to {w}|words similar to {w}|words that mean {w}
""".strip().replace("\n", "|").split("|")

ANTONYM_QUESTIONS = """
what is the opposite of {w}|what's the opposite of {w}|what is an antonym of {w}|what's the antonym of {w}
what are antonyms of {w}|what is an antonym for {w}|which word is the opposite of {w}|is there an opposite of {w}
does {w} have an opposite|do you know the opposite of {w}|do you know an antonym for {w}
can you tell me the opposite of {w}|can you give me an antonym of {w}|what word means the opposite of {w}
""".strip().replace("\n", "|").split("|")

ANTONYM_REQUESTS = """
the opposite of {w}|opposite of {w}|antonym of {w}|antonym for {w}|an antonym for {w}|antonyms of {w}|{w} antonym
{w} opposite|tell me the opposite of {w}|give me the opposite of {w}|give me an antonym of {w}|name an antonym of {w}
i need the opposite of {w}|find an antonym for {w}|opposite: {w}
""".strip().replace("\n", "|").split("|")

# Questions about the word of the turn before.
FOLLOW_DEFINE = """
what does it mean|what does that mean|and what does it mean|what is that|define it|explain it|explain that|its meaning
what's its meaning|the definition|and the definition|meaning|what does the word mean|say it again|tell me the meaning
""".strip().replace("\n", "|").split("|")
FOLLOW_POS = """
and as {name}|as {name}|what about {name}|and when it's {name}|what does it mean as {name}|and the {bare}|the {bare}
can it be {name}|is it also {name}|define it as {name}|how about as {name}|and if it's {name}|what about as {name}
""".strip().replace("\n", "|").split("|")
FOLLOW_EXAMPLE = """
use it in a sentence|can you use it in a sentence|could you use it in a sentence|an example|example|give me an example
can you give me an example|and an example|how is it used|how do i use it|how do you use it|for example|a sentence
make a sentence with it|give me a sentence|in a sentence|and in a sentence|show me an example|do you have an example
use that in a sentence|put it in a sentence|an example sentence|can i have an example|how would i use it
""".strip().replace("\n", "|").split("|")
FOLLOW_SYNONYM = """
a synonym|synonyms|and a synonym|any synonyms|another word for it|another word|what's another word for it
give me a synonym|what is a synonym|do you know a synonym|what can i say instead|is there another word for it
and synonyms|other words for it|can you give me a synonym|other words for that|does it have synonyms
""".strip().replace("\n", "|").split("|")
FOLLOW_ANTONYM = """
what's the opposite|the opposite|and the opposite|what is its opposite|an antonym|antonyms|does it have an opposite
what's the opposite of it|opposite|and an antonym|what's its antonym
""".strip().replace("\n", "|").split("|")
FOLLOW_OTHER_WORD = """
and {w}|what about {w}|how about {w}|and what about {w}|and what does {w} mean|and what is {w}|now {w}|then {w}
what about the word {w}|ok, and {w}|thanks, and {w}|and the word {w}|next: {w}|now define {w}|also {w}
""".strip().replace("\n", "|").split("|")

SYSTEM_PROMPTS = """
You are a helpful assistant.|You are a dictionary.|You explain English words.|You are a friendly dictionary.|
You are a helpful assistant that defines English words.|Answer briefly.|You are Lexicon.|Be concise.|Be helpful.|
You are a concise assistant.|You help people to learn English.|Define words for the user.|You are an English teacher.|
You are quire's lexicon, a small model that defines English words.|Answer the user's questions about words.
""".strip().replace("\n", "").split("|")

# Sentences beside the question that do not bear on the answer.
ASIDES = """
i'm learning English|i have a test tomorrow|my English is not very good|this may be a silly question|i read a lot
you are the expert|i am not a native speaker|nobody could tell me|i have looked everywhere|it came up at work
we talked about it at dinner|i am doing a crossword|it's late and i can't think|i like words|my dictionary is at home
it sounds strange to me|i have seen it many times|it was on the test|i'm writing a story|let's go on|here is a new one
i have another question|we are playing a game|the children asked me|that is all i need|it's not urgent|i love this
it bothers me|it sounds nice|i should know this|this one is hard|here's an easy one|i want to learn it
""".strip().replace("\n", "|").split("|")

# (questions, answer)
SMALL_TALK = [
    (
        "hi|hello|hey|hi there|hello there|hey there|good morning|good evening|good afternoon|good day|greetings|howdy|"
        "hiya|yo|hello, lexicon|hi lexicon|hello!|hi!|hey you|hello again|hallo|morning|evening|hi bot|hello friend|"
        "hello dictionary|hi everyone|hello, can you help me|hi, i have a question|hello, i need help",
        "Hello! Ask me about any English word, and I will tell you what it means.",
    ),
    (
        "who are you|what are you|who is this|what's your name|what is your name|your name|are you a robot|are you human|"
        "are you an ai|who am i talking to|what kind of model are you|introduce yourself|tell me about yourself|"
        "who made you|are you a dictionary|are you chatgpt|are you a person|what model is this|what model are you|"
        "what should i call you|do you have a name|who built you|are you real|tell me who you are|say who you are|"
        "please introduce yourself|and who are you|so who are you|are you a bot|what is lexicon|are you a language model",
        "I am Lexicon, a small language model that explains English words.",
    ),
    (
        "what can you do|what do you do|how can you help me|help|help me|what can i ask|what can i ask you|how do you work|"
        "how does this work|what are you good at|what are your skills|what do you know|what questions can you answer|"
        "how do i use you|what are you for|what is this|can you help me|what should i ask|give me some help|instructions|"
        "tell me what you can do|what are you able to do|which questions can i ask|how can i use this|what else can you do|"
        "what can you tell me|do you need help|i need help|show me what you can do|what are your capabilities|usage",
        "I can define English words, use them in a sentence, and name synonyms and opposites. Try: What does serene mean?",
    ),
    (
        "thanks|thank you|thank you very much|thanks a lot|many thanks|thank you so much|thx|ty|cheers, thanks|"
        "ok thanks|okay, thank you|great, thanks|perfect, thank you|thanks, that helps|that was helpful, thanks|"
        "thank you for your help|thanks for the help|awesome, thanks|nice, thank you|i see, thanks|oh, thank you|"
        "wonderful, thank you|thanks again|got it, thanks|that helps, thank you|much obliged, thank you|thanks!",
        "You are welcome! Is there another word that you would like to know?",
    ),
    (
        "bye|goodbye|good bye|see you|see you later|bye bye|good night|bye for now|that's all|that is all, goodbye|"
        "ok bye|thanks, bye|farewell, lexicon|i have to go|i'm leaving|ciao|talk to you later|until next time|"
        "have a nice day|that will be all|see you soon|bye then|i'm done, bye|take care, bye|goodbye, lexicon",
        "Goodbye! Come back when you meet a word that you don't know.",
    ),
    (
        "how are you|how are you doing|how are you today|how's it going|how do you do|what's up|are you well|"
        "how do you feel|how are things|how have you been|is everything ok|are you ok|you ok|hi, how are you|"
        "hello, how are you|hey, how's it going|hello, how are you doing today|and how are you|how is your day",
        "I am fine, thank you! Which word would you like to know?",
    ),
    (
        "what's the weather like|what is the weather today|what time is it|what day is it today|tell me a joke|"
        "tell me a story|write a poem|write me a poem about love|sing a song|who is the president|who won the game|"
        "what is the capital of France|what's the capital of Germany|how old are you|where are you from|where do you live|"
        "what is two plus two|what is 2 + 2|what's 5 times 7|calculate 12 + 30|solve this equation|write some code|"
        "write a python program|can you code|translate this into French|how do you say hello in Spanish|do you love me|"
        "i love you|what is your favourite colour|do you like music|play some music|recommend a film|recommend a book|"
        "how do i cook rice|give me a recipe|how far is the moon|who wrote Hamlet|when did the war end|what's the news|"
        "book me a flight|set an alarm|what should i wear today|who invented the telephone|how tall is Mount Everest|"
        "what is the population of India|is there life on Mars|what's the meaning of life|can you drive a car|"
        "do my homework|write an essay for me|summarize this text|how much does a car cost|where is the nearest shop|"
        "what did i say before|can i speak to a human|tell me a secret|who is your favourite singer|are you hungry|"
        "what is the largest planet|how many people live in China|count to ten|what language do you speak|"
        "open the door|turn on the light|what is the square root of nine|who is the king of England|let's play a game",
        "I can only help with English words. Ask me what a word means.",
    ),
]
