"""A fact in a long text and a question about it."""
import words

DOES_NOT_SAY = "The text does not say."


def fact(rng):
    """(sentence, question, answer)"""
    name, thing, value = words.proper(rng), words.noun(rng), words.code(rng)
    kind = rng.choice(["secret code", "password", "magic number", "magic word", "pin", "serial number", "secret number", "access code", "key", "order number", "room number", "phone number",
                       "licence plate", "ticket number", "hidden word", "lucky number", "code word", "secret word", "passphrase", "special code", "combination"])
    place = words.city(rng)
    forms = [
        (f"The {kind} is {value}.", [f"What is the {kind}?", f"what's the {kind}", f"Tell me the {kind}.", f"Which {kind} is in the text?", f"Find the {kind}."], value),
        (f"The {kind} is {value}.", [f"What is the {kind}?", f"What is the {kind} mentioned in the text?", f"Give me the {kind}."], value),
        (f"The {kind} of the {thing} is {value}.", [f"What is the {kind} of the {thing}?", f"Which {kind} has the {thing}?"], value),
        (f"The {kind} for the {thing} is {value}.", [f"What is the {kind} for the {thing}?", f"Tell me the {kind} for the {thing}"], value),
        (f"{name}'s {kind} is {value}.", [f"What is {name}'s {kind}?", f"Which {kind} does {name} have?"], value),
        (f"Remember: the {kind} is {value}.", [f"What is the {kind}?", f"What {kind} should you remember?"], value),
        (f"By the way, the {kind} is {value}.", [f"What is the {kind}?", f"What was the {kind}?"], value),
        (f"{name} lives in {place}.", [f"Where does {name} live?", f"In which city does {name} live?"], place),
        (f"{name} was born in {place}.", [f"Where was {name} born?"], place),
        (f"The {thing} is in {place}.", [f"Where is the {thing}?"], place),
        (f"The {thing} belongs to {name}.", [f"Who owns the {thing}?", f"Whose is the {thing}?", f"To whom does the {thing} belong?"], name),
        (f"The name of the {thing} is {value}.", [f"What is the name of the {thing}?", f"How is the {thing} called?"], value),
        (f"The favourite colour of {name} is {(c := rng.choice(words.COLOURS))}.", [f"What is the favourite colour of {name}?", f"Which colour does {name} like best?"], c),
        (f"{name} has {(n := rng.randint(2, 99))} {(a := rng.choice(words.ANIMALS))}s.", [f"How many {a}s does {name} have?"], str(n)),
        (f"The meeting with {name} is on {(d := rng.choice(words.DAYS))}.", [f"When is the meeting with {name}?", f"On which day is the meeting with {name}?"], d),
        (f"The {thing} costs {(p := rng.randint(2, 9999))} dollars.", [f"How much does the {thing} cost?", f"What does the {thing} cost?"], f"{p} dollars"),
        (f"The train to {place} leaves at {(t := words.time_of_day(rng))}.", [f"When does the train to {place} leave?"], t),
    ]
    sentence, questions, answer = rng.choice(forms)
    return sentence, rng.choice(questions), answer


def example(rng, n_words, paragraphs=words.TRAIN):
    """(question with its text, answer, reasoning)"""
    pieces, joiner = words.filler(rng, n_words, paragraphs)
    sentence, question, answer = fact(rng)
    if rng.random() < 0.5:  # facts that nobody asks for
        for _ in range(rng.randint(1, 3)):
            pieces.insert(rng.randrange(len(pieces) + 1), fact(rng)[0])
    missing = rng.random() < 0.08
    if not missing:
        at = rng.randrange(len(pieces) + 1)
        if rng.random() < 0.3 and at < len(pieces):  # inside a paragraph
            inside = pieces[at].split(". ")
            inside.insert(rng.randrange(len(inside) + 1), sentence.rstrip("."))
            pieces[at] = ". ".join(inside)
        else:
            pieces.insert(at, sentence)
    text = joiner.join(pieces)
    order = rng.randrange(7)
    if order < 3:
        prompt = question + rng.choice(["\n\n", "\n\n", "\n", "\n\nText:\n", " Here is the text: "]) + text
    elif order < 6:
        prompt = text + rng.choice(["\n\n", "\n\n", "\n", " ", "\n\nQuestion: ", "\n---\n"]) + question
    else:
        prompt = "Read this:\n" + text + "\n\nNow answer: " + question
    if missing:
        return prompt, DOES_NOT_SAY, "I look for it in the text. It is not there."
    return prompt, answer + ("" if rng.random() < 0 else "."), f"The text says: {sentence}"
