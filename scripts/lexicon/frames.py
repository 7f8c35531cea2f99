"""Wordings put together from parts: a frame with a gap, {np}, and a phrase that names what is asked for.

Some combinations are bad English. That is wanted: people write so, and a model that has met only good English in
questions takes every other wording for a question about an unknown word.
"""

PHRASES = {
    "define": """
the meaning of {w}|the definition of {w}|a definition of {w}|a definition for {w}|the sense of {w}|{w}|{w}|{w}
the word {w}|the word {w}|the term {w}|the expression {w}|this word, {w}|the following word: {w}|what {w} means
what {w} means|what {w} is|what the word {w} means|what the term {w} means|what is meant by {w}|the meaning behind {w}
what {w} stands for|an explanation of {w}|an explanation for {w}|what they mean by {w}|how {w} is defined
the dictionary definition of {w}|the entry for {w}|what {w} is about|what {w} refers to|what {w} might be
what people mean by {w}|the English word {w}|the concept of {w}|the idea of {w}|what a {w} is|what sort of thing {w} is
what exactly {w} means|what that word {w} means|what it means to say {w}|the meaning of this word: {w}
what {w} could mean|what to understand by {w}|a short explanation of {w}|{w}, the word|the proper meaning of {w}
what's behind the word {w}|what {w} really is|the exact meaning of {w}|what {w} is supposed to be|the word "{w}"
what we call {w}|something called {w}|the notion of {w}|a description of {w}|the thing called {w}
""",
    "part": """
{w} as {name}|{w} as {name}|the {bare} {w}|the {bare} {w}|{w} when it is {name}|{w} when used as {name}
the meaning of {w} as {name}|what {w} means as {name}|what {w} is as {name}|the {bare} sense of {w}|{w} the {bare}
the {bare} form of {w}|the definition of {w} as {name}|{w} in its sense as {name}|what the {bare} {w} means
what the word {w} means as {name}|what {w} means when it is {name}|{w} if it's {name}|{w} ({bare})|{w} [{bare}]
the {bare} meaning of {w}|{w}, as {name}|{w}, {name}|the word {w} as {name}|the use of {w} as {name}
""",
    "example": """
an example of {w}|a sentence with {w}|an example sentence for {w}|{w} in a sentence|{w} in a sentence
a sample sentence using {w}|a phrase with {w}|how {w} is used|how to use {w}|a usage example for {w}|an example for {w}
the word {w} in a sentence|a sentence using {w}|a sentence that has {w} in it|an example with {w}|a sentence about {w}
how the word {w} is used|a sentence that contains {w}|some sentence with the word {w}|how one uses {w}
a good example of {w}|a short sentence with {w}|an example of how {w} is used|sentences with {w}|the usage of {w}
where to use {w}|when to use {w}|an example that uses {w}|a simple sentence with {w}|examples of {w}
""",
    "synonym": """
a synonym for {w}|a synonym of {w}|synonyms of {w}|synonyms for {w}|another word for {w}|other words for {w}
a different word for {w}|an alternative to {w}|a replacement for {w}|something that means the same as {w}
an equivalent of {w}|words like {w}|a word similar to {w}|a word close to {w}|a better word than {w}
an alternative word for {w}|another way to say {w}|a different way of saying {w}|a word to replace {w}
a word that means {w}|the synonyms of {w}|some synonyms of {w}|another term for {w}|some other word for {w}
another word instead of {w}|a few synonyms for {w}|words with the meaning of {w}|one word to use instead of {w}
""",
    "antonym": """
the opposite of {w}|an antonym of {w}|an antonym for {w}|the contrary of {w}|the antonym of {w}|the reverse of {w}
a word with the opposite meaning of {w}|the opposite word of {w}|antonyms of {w}|opposites of {w}
a word that means the opposite of {w}|what the opposite of {w} is|an opposite for {w}
""",
}

PHRASES = {what: text.strip().replace("\n", "|").split("|") for what, text in PHRASES.items()}

REQUEST_FRAMES = """
tell me {np}|explain {np}|explain to me {np}|give me {np}|describe {np}|show me {np}|define {np}|clarify {np}|state {np}
say {np}|reveal {np}|outline {np}|present {np}|find {np}|find me {np}|fetch {np}|bring me {np}|hand me {np}|get me {np}
supply {np}|write {np}|write down {np}|read me {np}|help me with {np}|help me understand {np}|help me find {np}
walk me through {np}|break down {np}|sum up {np}|summarize {np}|comment on {np}|paraphrase {np}|elaborate on {np}
expand on {np}|unpack {np}|decode {np}|decipher {np}|print {np}|output {np}|answer me this: {np}|name {np}|list {np}
let me have {np}|let me hear {np}|let us look at {np}|let's talk about {np}|let's discuss {np}|let's hear {np}
let's do {np}|try {np}|do {np}|go with {np}|start with {np}|take {np}|think of {np}|guess {np}|check {np}|consult {np}
share {np}|send me {np}|lend me {np}|deliver {np}|offer {np}|suggest {np} to me|recall {np}|repeat {np}|consider {np}
inform me about {np}|enlighten me about {np}|educate me on {np}|brief me on {np}|advise me on {np}|report on {np}
make clear to me {np}|put into words {np}|look into {np}|dig up {np}|work out {np}|figure out {np}|quiz me on {np}
simplify {np}|illustrate {np}|demonstrate {np}|characterize {np}|specify {np}|identify {np}|talk to me about {np}
i need {np}|i want {np}|i'd like {np}|i would like {np}|i require {np}|i'm after {np}|i was looking for {np}
i can't figure out {np}|i'm confused by {np}|i struggle with {np}|i'm curious about {np}|i'm stuck on {np}
i came here for {np}|my question concerns {np}|my question is about {np}|this is about {np}|it's about {np}
i never understood {np}|i keep forgetting {np}|nobody explained {np}|we are discussing {np}|i am trying to learn {np}
my homework is to find {np}|i forgot {np}|i've lost {np}|i'm interested in {np}|i'm wondering about {np}
i'm trying to understand {np}|i have trouble with {np}|i have to know {np}|i must know {np}|i should know {np}
i would love to hear {np}|i would be glad to know {np}|i'd be grateful for {np}|i'd appreciate {np}|i hope you know {np}
i bet you know {np}|i bet you don't know {np}|you surely know {np}|you must know {np}|you can tell me {np}
no one can tell me {np}|{who} asked me for {np}|{who} wants {np}|{who} would like {np}|{who} needs {np}
{who} is asking about {np}|{who} can't remember {np}|{who} was wondering about {np}|for {where} i need {np}
there is a question about {np}|the question is about {np}|the task: {np}|first, {np}|next, {np}|now, {np}|also {np}
task: {np}|request: {np}|topic: {np}|query: {np}|please: {np}|{np}|{np}|{np}, that's what i want|{np} is what i need
{np}, that is my question|{np}, if you don't mind|{np} needed|{np} wanted|{np} would be nice|{np} is unknown to me
{np} is unclear to me|{np} is a mystery to me|{np} confuses me|{np} is hard for me|{np} would help|{np} is new to me
""".strip().replace("\n", "|").split("|")

QUESTION_FRAMES = """
can you tell me {np}|can you give me {np}|can you explain {np}|can you show me {np}|can you find {np}|can i have {np}
can i get {np}|can i ask about {np}|can i see {np}|can you help me with {np}|can you describe {np}|can we have {np}
can you state {np}|can you say {np}|can anyone explain {np}|can somebody tell me {np}|can you think of {np}
could you tell me {np}|could you give me {np}|could you explain {np}|could you state {np}|could you name {np}
could you let me know {np}|could you describe {np}|could you help me understand {np}|could i have {np}|could i get {np}
could i ask you for {np}|could you find out {np}|could you write {np}|could you come up with {np}|could you look up {np}
would you tell me {np}|would you give me {np}|would you know {np}|would you happen to know {np}|would you have {np}
would you be able to tell me {np}|would you be willing to explain {np}|would it be possible to get {np}
would you be so kind to tell me {np}|will you tell me {np}|will you give me {np}|won't you tell me {np}
do you know {np}|do you have {np}|do you remember {np}|do you understand {np}|do you mind explaining {np}
do you think you could tell me {np}|do you happen to have {np}|don't you know {np}|did you know {np}|have you {np}
have you got {np}|have you any idea of {np}|is there {np}|is it possible to have {np}|is it ok to ask for {np}
are you able to tell me {np}|are you able to give {np}|are you familiar with {np}|are you aware of {np}
are there {np}|am i allowed to ask for {np}|may i have {np}|may i know {np}|may i ask for {np}|may i hear {np}
might i ask you {np}|might you know {np}|what about {np}|how about {np}|how about giving me {np}|how do i find {np}
how do you explain {np}|how would i explain {np}|how can i explain {np}|how would you describe {np}
how does one explain {np}|how could i describe {np}|where can i find {np}|where do i get {np}|who can tell me {np}
who knows {np}|why don't you tell me {np}|what is {np}|what's {np}|what would be {np}|what might be {np}|what is up with {np}
what's the deal with {np}|what can you tell me about {np}|what can you say about {np}|what do you know about {np}
what do you say to {np}|what do you have on {np}|what is there to say about {np}|what should i know about {np}
what if i asked for {np}|what do they call {np}|which is {np}|what was {np}|what was {np} again|any idea of {np}
any clue about {np}|any thoughts on {np}|so what is {np}|and what is {np}|and do you know {np}|but what is {np}
{np}, do you know it|{np}, can you help|{np}, what is it|{np}, any idea|{np}, what do you say|{np}, could you explain
{np}, do you have it|{np}, what was it again|{np}, please|ever heard of {np}|ready for {np}|got {np}
does {who} know {np}|how did {who} explain {np}|what did {who} say about {np}|what would {who} say about {np}
""".strip().replace("\n", "|").split("|")

# Only for definitions: how the word was met, and then a question about it.
MEETINGS = """
{who} said {w}|{who} wrote {w}|{who} used {w}|{who} mentioned {w}|{who} shouted {w}|{who} told me {w}|{who} called me {w}
{who} whispered {w}|{who} asked about {w}|{who} posted {w}|{who} yelled {w}|{who} typed {w}|{who} read out {w}
{who} quoted {w}|{who} repeated {w}|{who} sent me {w}|{who} sent me a message with {w}|{who} likes the word {w}
{who} often says {w}|{who} always uses {w}|{who} talks about {w}|{who} never says {w}|{who} calls it {w}
{who} said something about {w}|{who} says {w} all the time|{who} talked of {w}|{who} used the word {w} in {where}
{who} is writing about {w}|if {who} says {w}|when {who} uses {w}|when somebody says {w}|if someone writes {w}
when people say {w}|if people talk about {w}|i heard {w}|i read {w}|i saw {w}|i met {w}|i noticed {w}|i found {w}
i discovered {w}|i encountered {w}|i came across {w}|i ran into {w}|i tripped over {w}|i spotted {w}|i was given {w}
i picked up {w}|i just heard {w}|i often hear {w}|i always see {w}|i remember {w}|i overheard {w}|i got {w}
i heard the word {w}|i read the word {w}|i saw the word {w}|i met the word {w}|i found the word {w}|i keep seeing {w}
i learned the word {w}|i keep reading {w}|we heard {w}|we read about {w}|we found {w}|we talked about {w}
we had the word {w}|there is {w}|there is this word {w}|there's the word {w}|there was {w}|it says {w}|it said {w}
it reads {w}|here it says {w}|here is {w}|here's a word: {w}|this word, {w}|the word {w}|the word {w} came up
{w} came up|{w} was mentioned|{w} was used|{w} appears|{w} is a word|{w} sounds odd|{w} is everywhere|{w} is on my list
{w} was in the exam|{w} is a new word for me|they said {w}|they wrote {w}|they call it {w}|people say {w}
my word today is {w}|the next word is {w}|one word: {w}|take the word {w}|take {w}|suppose i say {w}|let's say {w}
i have a word for you: {w}|another word: {w}|the teacher gave us {w}|i must use {w}|i want to use {w}|i can't spell {w}
""".strip().replace("\n", "|").split("|")
MEETING_ENDS = """
{m} in {where}|{m} in {where}|{m} in {where}|{m} yesterday|{m} today|{m} last night|{m} this morning|{m} last week|{m}
{m}|{m}|{m}|{m}|{m} again|{m} once|{m} at work|{m} at school|{m} on television|{m} on the train|{m} somewhere|{m} at home
{m} the other day|{m} just now|{m} on the street|{m} at a party|{m} on my way home|{m} on holiday|{m} the whole time
""".strip().replace("\n", "|").split("|")
AFTER_MEETING = """
what does it mean|what does it mean|what does that mean|what is it|what is that|what's that|what's it mean|what is this
what did that mean|what could that mean|what may it mean|what could it be|what do they mean|what did they mean
what did he mean|what did she mean|what do people mean|what do you think it means|what was meant|what was that
what is meant by that|what is it about|what does this word mean|what does the word mean|what's the definition
what's its meaning|what is the meaning|meaning|definition|is that a word|is it a real word|do you know it
do you know that word|do you know what it means|do you know what that is|can you explain|can you explain it
can you define it|could you define it|could you explain that|could you help|can you help me|any idea|any ideas
any idea what that is|please explain|please define it|please help|explain please|define it|tell me what it means
tell me what that is|help|help me|help me understand it|i don't get it|i don't know it|i don't understand it
no idea what it is|no idea what that means|i have no clue|i'm lost|i wonder what it is|i wonder what that means
i'd like to know what it means|i want to understand it|i never heard of it|i'm not familiar with it|how so|huh|sorry
i had to look it up|what would you say it is|how is it defined|how would you explain it|how would you define that
what do i say|what am i to understand|what do i do with that|what should i think of|what is one supposed to understand
what does one call that|what were they trying to say|what was the point|what is being talked about|so what is it
""".strip().replace("\n", "|").split("|")

CHATTER = """
yo|bro|dude|omg|tbh|idk|btw|umm|haha|plz|plz help|thx|rn|fr|u know|man|buddy|pal|sir|madam|friend|honestly|seriously
real quick|just asking|just curious|no rush|quickly|in a hurry|for real|oh|oh well|ah|wow|whoa|gosh|anyway|alright
listen|look|see|say|tell me|you see|you know|i mean|like|kind of|sort of|basically|by the way|to be honest|in fact
if i may|if you know|if you would|if it's ok|when you can|right now|at once|today|tonight|this time|once again|finally
dear friend|dear lexicon|lexicon|assistant|my dear|my friend|everyone|folks|guys|team|kindly|in a word|in one sentence
in a few words|in your own words|as simply as possible|step by step|for beginners|for a child|for a crossword
for {where}|for {who}|says {who}|asks {who}|thanks in advance|cheers|regards|much appreciated|i beg you|would you|ok
""".strip().replace("\n", "|").split("|")

# What noise must not change: words that say what is asked for.
KEY_WORDS = frozenset(
    "sentence sentences example examples use used uses using usage synonym synonyms another other different alternative "
    "replacement replace equivalent same similar like close better instead else opposite opposites antonym antonyms "
    "contrary reverse noun verb adjective adverb a an as word words way".split()
)
