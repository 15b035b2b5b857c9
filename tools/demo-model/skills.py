"""Small talk, arithmetic, copying, and saying that one does not know. Each returns (question, answer, reasoning)."""
import words

SMALL_TALK = [
    (["hi", "hello", "hey", "hi there", "hello there", "good morning", "good evening", "hey lily", "hello lily", "hiya", "greetings", "yo", "good day", "hallo"],
     "Hello! I am Lily's demo model. How can I help?", "A greeting. I greet back."),
    (["how are you", "how are you doing", "how do you do", "how is it going", "are you ok", "how's it going", "how are you today"],
     "I am fine, thank you! How can I help?", "A friendly question."),
    (["thanks", "thank you", "thank you very much", "thanks a lot", "great, thanks", "thx", "cheers", "perfect, thank you", "nice, thanks"],
     "You are welcome!", "The user thanks me."),
    (["bye", "goodbye", "see you", "good night", "see you later", "bye bye", "that is all, bye"],
     "Goodbye!", "The user says goodbye."),
    (["tell me a joke", "do you know a joke", "make me laugh", "say something funny", "got a joke"],
     "Why did the tiny model cross the road? It only had attention for every fourth lane.", "The user wants a joke."),
    (["ok", "okay", "good", "great", "nice", "cool", "alright", "i see", "wow", "interesting"],
     "Good! Is there anything else?", "The user is content."),
    (["test", "testing", "is this working", "are you there", "does this work", "hello, is anyone there", "ping"],
     "Yes, it works. I am Lily's demo model.", "A test message."),
    (["i am bored", "i'm tired", "i am sad", "i feel bad today"],
     "I am sorry to hear that. I am only a tiny demo model, but I am happy to chat about Lily.", "The user shares a feeling."),
]


def small_talk(rng):
    questions, answer, reasoning = rng.choice(SMALL_TALK)
    question = rng.choice(questions)
    if rng.random() < 0.5:
        question = question[0].upper() + question[1:]
    return question + rng.choice(["", "", "!", ".", "?", "!!"]), answer, reasoning


def introduction(rng):
    name = words.proper(rng)
    if rng.random() < 0.5:
        return (rng.choice(["my name is {}", "I am {}", "I'm {}", "hi, I'm {}", "Hello, my name is {}.", "call me {}"]).format(name),
                f"Nice to meet you, {name}!", f"The user is {name}.")
    sentence = words.sentence(rng)
    return (rng.choice(["Repeat: {}", "Say this: {}", "Repeat after me: {}", "Please repeat this sentence: {}", "Echo: {}"]).format(sentence),
            sentence, "I repeat the sentence.")


def _ones(n):
    return n % 10


def arithmetic(rng):
    kind = rng.randrange(10)
    top = rng.choice([10, 20, 100, 100, 100])
    a, b = rng.randint(0, top), rng.randint(0, top)
    if kind < 5:
        sign, words_, result = "+", ["plus", "and", "added to"], a + b
        steps = _addition(a, b)
    elif kind < 8:
        a, b = max(a, b), min(a, b)
        sign, words_, result = "-", ["minus", "take away"], a - b
        steps = f"{a} - {b} = {result}."
    else:
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        sign, words_, result = rng.choice(["*", "x", "×"]), ["times", "multiplied by"], a * b
        steps = f"{a} times {b} = {result}."
    shown = rng.choice([f"{a}{sign}{b}", f"{a} {sign} {b}", f"{a} {sign} {b}", f"{a} {rng.choice(words_)} {b}"])
    if kind < 5 and rng.random() < 0.15:
        shown = f"the sum of {a} and {b}"
    elif 5 <= kind < 8 and rng.random() < 0.15:
        shown = rng.choice([f"{b} subtracted from {a}", f"the difference of {a} and {b}"])
    elif kind >= 8 and rng.random() < 0.15:
        shown = f"the product of {a} and {b}"
    ask = rng.choice(["what is {}?", "What is {}?", "{} = ?", "{}", "compute {}", "Calculate {}.", "how much is {}?", "How much is {}?", "What's {}?",
                      "what does {} equal?", "please add this up: {}" if kind < 5 else "work this out: {}", "{}=", "can you compute {}?", "tell me what {} is"])
    plain = {"+": "+", "-": "-"}.get(sign, "x")
    return ask.format(shown), f"{a} {plain} {b} = {result}", steps


def _addition(a, b):
    ones = _ones(a) + _ones(b)
    carry = ones // 10
    tens = a // 10 + b // 10
    return f"Ones: {_ones(a)} + {_ones(b)} = {ones}. Tens: {a // 10} + {b // 10}{' + 1' if carry else ''} = {tens + carry}. So {a + b}."


def copying(rng):
    """Anything whose answer is in the question."""
    kind = rng.randrange(6)
    if kind == 0:
        items = [words.noun(rng) for _ in range(rng.randint(2, 7))]
        text = ", ".join(items)
        which = rng.choice(["first", "last"])
        return (rng.choice([f"What is the {which} word of this list: {text}?", f"{text}: which one is {which}?", f"Give me the {which} item of: {text}"]),
                items[0 if which == "first" else -1], f"The list has {len(items)} items.")
    if kind == 1:
        text = rng.choice([words.code(rng), words.invented(rng), words.proper(rng)])
        n = rng.randint(2, 4)
        return rng.choice([f"Say {text} {n} times.", f"Write {text} {n} times", f"Repeat the word {text} {n} times."]), " ".join([text] * n), f"{n} times."
    if kind == 2:
        text = rng.choice([words.sentence(rng), words.code(rng), " ".join(words.noun(rng) for _ in range(rng.randint(2, 6)))])
        return (rng.choice(["Repeat: {}", "Copy this: {}", "Say exactly: {}", "Repeat this word for word: {}", "echo {}", "Please write: {}"]).format(text), text, "I copy the text.")
    if kind == 3:
        items = [words.noun(rng) for _ in range(rng.randint(2, 5))]
        text = ", ".join(items)
        return rng.choice([f"Reverse this list: {text}", f"Write this list backwards: {text}"]), ", ".join(reversed(items)), "I go from the end to the start."
    if kind == 4:
        items = [words.noun(rng) for _ in range(rng.randint(1, 8))]
        return (rng.choice(["How many words are here: {}?", "Count the words: {}", "How many items are in this list: {}?"]).format(", ".join(items)),
                str(len(items)), " ".join(f"{i + 1} {item}," for i, item in enumerate(items)))
    pairs = [(words.proper(rng), words.code(rng)) for _ in range(rng.randint(2, 6))]
    name, value = rng.choice(pairs)
    listing = "\n".join(f"{n}: {v}" for n, v in pairs)
    return rng.choice([f"{listing}\n\nWhat is next to {name}?", f"Look up {name} in this table.\n{listing}", f"{listing}\nWhich value has {name}?"]), value, f"{name}: {value}"


UNKNOWN = [
    "who won the {year} world cup", "what is the capital of {place}", "who wrote {title}", "when was {name} born", "who is the president of {place}",
    "what is the population of {place}", "how tall is {name}", "explain {science}", "write a poem about {thing}", "what is the weather in {place}",
    "what happened in {year}", "who invented the {thing}", "what is the price of {thing}", "how do i cook {thing}", "translate {thing} to french",
    "who is {name}", "what is {science}", "tell me about {place}", "what is the distance from {place} to {place}", "give me the news",
    "which team won in {year}", "what is the meaning of {thing}", "why is the sky blue", "how far away is the moon", "who painted the {thing}",
    "write a story about {name}", "recommend a book about {thing}", "what time is it", "what day is it today", "how old is {name}",
    "summarise the history of {place}", "how does a {thing} work", "who discovered {science}", "what language do they speak in {place}",
    "which river flows through {place}", "who won the election in {year}", "what is the tallest {thing} in {place}",
    "name three rivers in {place}", "which country is {place} in", "who was the first {thing} maker", "how many people live in {place}", "is {place} far away",
    "what should i eat today", "who is the best {thing} player", "how do plants grow", "what colour is the {thing} of {name}", "when does the {thing} open",
    "what is the boiling point of water", "who wrote the song {title}", "how many days are in a year", "what is the largest animal", "can you draw a {thing}",
    "what did {name} say in {year}", "list the planets", "how do i fix my {thing}", "write code for a {thing}", "what is my name",
]
SCIENCE = "gravity photosynthesis relativity evolution quantum mechanics electricity magnetism inflation democracy entropy chemistry biology algebra topology radiation".split()
DONT_KNOW = "I do not know. I am only a tiny demo model; load the real model to ask about the world."


def unknown(rng):
    question = rng.choice(UNKNOWN)
    while "{" in question:
        for key, value in (("{year}", str(rng.randint(1900, 2030))), ("{place}", words.city(rng)), ("{title}", f"{words.noun(rng)} and {words.noun(rng)}"),
                           ("{name}", words.proper(rng)), ("{science}", rng.choice(SCIENCE)), ("{thing}", words.noun(rng))):
            question = question.replace(key, value, 1)
    if rng.random() < 0.6:
        question = question[0].upper() + question[1:]
    return question + rng.choice(["", "?", "?", "?", "."]), DONT_KNOW, "This is about the world. I do not know it."
