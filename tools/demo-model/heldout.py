"""Held-out prompts of another kind than `evaluate.prompts`: wordings, tools and texts that no training template has.

The prompts of `evaluate.py` are fresh draws from the generators of the training data (only the questions about Lily and
the paragraphs around a needle are kept from training there). These are written by hand: other ways to ask, other tools,
and this repository's own documents as the text around a needle. `evaluate.py --unfamiliar` scores them.
"""
import json
import pathlib
import random
import re

import wire

ROOT = pathlib.Path(__file__).resolve().parents[2]

ARITHMETIC = ["add {a} to {b}", "I have {a} apples and get {b} more, how many apples do I have?", "sum of {a} and {b}", "so, {a} + {b} is what?",
              "What do you get when you add {a} and {b}?", "could you work out {a} + {b} for me", "{a}+{b}, quickly please", "Result of {a} plus {b}, please.",
              "my homework says {a} + {b}. What is it?", "what would {a} plus {b} be"]
GREETINGS = ["hi!!", "Hello, Lily :)", "hey hey", "good afternoon", "Morning!", "howdy", "hello, how are you today?", "Hi, nice to meet you"]
UNKNOWN = ["Who won the 1962 world cup?", "What's the capital of Mongolia?", "Which planet is the largest?", "Name three Greek philosophers.",
           "How many bones does a human have?", "What is the boiling point of lead?", "Who sang Yellow Submarine?", "When did the Roman Empire fall?",
           "Give me a recipe for pancakes", "What's the best phone this year?", "is it going to rain tomorrow?", "Who is the richest person alive?",
           "Explain how vaccines work", "Where can I buy cheap shoes?", "What does the word ephemeral mean?"]

# name, description, parameters, ways to ask
TOOLS = [
    ("lookup_capital", "Look up the capital of a country", {"country": "string"}, ["I'd love to know the capital of {country}", "capital city of {country}?"]),
    ("order_pizza", "Order a pizza for delivery", {"size": "string", "topping": "string"}, ["Get me a {size} pizza with {topping}", "One {size} {topping} pizza, please"]),
    ("roll_dice", "Roll dice with some number of sides", {"sides": "integer"}, ["Roll a die that has {sides} sides", "Throw a {sides}-sided die"]),
    ("define_word", "Definition of a word from the dictionary", {"word": "string"}, ["Define {word}.", "What is the definition of {word}?"]),
    ("list_directory", "List the files of a directory", {"directory": "string"}, ["Which files are in {directory}?", "ls {directory}"]),
    ("set_thermostat", "Set the temperature of a room in degrees", {"room": "string", "degrees": "integer"}, ["Heat the {room} to {degrees} degrees", "Put the {room} at {degrees} degrees"]),
    ("track_parcel", "Track a parcel by its number", {"tracking_number": "string"}, ["Where is my parcel {tracking_number}?", "Has {tracking_number} been delivered yet?"]),
    ("get_population", "Number of people who live in a town", {"town": "string"}, ["How many people live in {town}?", "Population of {town}?"]),
    ("run_query", "Run an SQL query", {"sql": "string"}, ["Run this query: {sql}", "Execute {sql}"]),
    ("hire_car", "Hire a car at an airport", {"airport": "string", "days": "integer"}, ["I need a car at {airport} for {days} days", "Hire a car in {airport}, {days} days"]),
    ("set_volume", "Set the loudness of the speaker", {"percent": "integer"}, ["Volume to {percent} percent", "Make it {percent} percent loud"]),
    ("get_route", "Directions from one place to another", {"origin": "string", "destination": "string"}, ["How do I get from {origin} to {destination}?", "Directions {origin} to {destination}"]),
]
VALUES = {"country": ["Mongolia", "Norway", "Chad", "Peru", "Laos"], "size": ["small", "medium", "large"], "topping": ["mushroom", "salami", "olive", "spinach"], "sides": [4, 8, 12, 20, 100],
          "word": ["ephemeral", "ladle", "quixotic", "zenith"], "directory": ["/etc", "/home/mara/notes", "src/kernels", "~/Downloads"], "room": ["attic", "nursery", "hall", "bathroom"],
          "degrees": [17, 19, 21, 24], "tracking_number": ["ZX-4471-Q", "88213907", "LK90321", "7F-0012"], "town": ["Tromso", "Ghent", "Arusha", "Boulder"],
          "sql": ["SELECT 1", "SELECT name FROM pets", "DELETE FROM logs"], "airport": ["Gatwick", "Narita", "Schiphol", "Logan"], "days": [2, 3, 5, 9],
          "percent": [10, 35, 60, 85], "origin": ["Bergen", "the hotel", "Turin"], "destination": ["Ghent", "the airport", "Nice"]}
RESULTS = [("get_weather", "How's Lisbon, weather-wise?", {"city": "Lisbon"}, '{"temperature": 23, "condition": "sunny"}', ["23"]),
           ("lookup_capital", "capital of Peru?", {"country": "Peru"}, "Lima", ["Lima"]),
           ("get_population", "How many live in Ghent?", {"town": "Ghent"}, '{"population": 265086}', ["265086"]),
           ("track_parcel", "Where's parcel LK90321?", {"tracking_number": "LK90321"}, '{"place": "Antwerp", "status": "moving"}', ["Antwerp"]),
           ("roll_dice", "Roll a 20-sided die", {"sides": 20}, "17", ["17"]),
           ("set_thermostat", "Warm the attic to 21", {"room": "attic", "degrees": 21}, '{"status": "ok"}', ["ok"])]

NEEDLES = [("The secret code is {v}.", "What is the secret code?"), ("Please note that the vault opens with {v}.", "What does the vault open with?"),
           ("The wifi password in this building is {v}.", "What is the wifi password?"), ("Our project was given the code name {v}.", "What is the code name of the project?"),
           ("The parking space of the director has the number {v}.", "Which number has the parking space of the director?"), ("The magic number you need is {v}.", "What is the magic number?"),
           ("Do not forget that the alarm code is {v}.", "What's the alarm code?"), ("The door at the back opens with the code {v}.", "Which code opens the door at the back?")]


def definition(name, description, parameters):
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {"type": "function", "function": {"name": name, "description": description,
                                             "parameters": {"type": "object", "properties": properties, "required": list(parameters)}}}


def documents():
    """Paragraphs of this repository's Markdown: headings, lists, tables and code as well as prose."""
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in files)
    return [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]


def prompts(tokenizer, seed=7):
    """[(kind, prompt text, checker)]; a checker takes (content, calls)."""
    rng, out = random.Random(seed), []

    def add(kind, messages, tools, check):
        out.append((kind, wire.render([*messages, ("assistant", "", "", [])], tools, len(out) % 2 == 0)[0], check))

    has = lambda *parts: lambda content, calls: not calls and all(part.lower() in content.lower() for part in parts)
    for _ in range(3):
        for form in ARITHMETIC:
            a, b = rng.randint(1, 60), rng.randint(1, 39)
            add("arithmetic", [("user", form.format(a=a, b=b))], [],
                lambda content, calls, r=str(a + b): re.findall(r"\d+", content)[-1:] == [r])
    for text in GREETINGS:
        add("greeting", [("user", text)], [], lambda content, calls: not calls and bool(re.search("hello|fine|nice to meet", content, re.I)))
    for text in UNKNOWN:
        add("does not know", [("user", text)], [], has("do not know"))
    for i in range(70):
        offered = rng.sample(TOOLS, rng.randint(1, 5))
        chosen = [offered[0]] if i % 4 or len(offered) == 1 else offered[:2]
        asked, expected = [], []
        for name, _, parameters, asks in chosen:
            values = {key: rng.choice(VALUES[key]) for key in parameters}
            asked.append(rng.choice(asks).format(**values))
            expected.append((name, {key: str(value) for key, value in values.items()}))
        rng.shuffle(offered)
        question = asked[0] if len(asked) == 1 else f"{asked[0].rstrip('.?')}. Also, {asked[1]}"
        kind = "one call" if len(asked) == 1 else "two calls"
        add(f"unfamiliar tools, {kind}", [("user", question)], [definition(*tool[:3]) for tool in offered],
            lambda content, calls, e=expected: calls == e)
    for name, question, arguments, result, parts in RESULTS:
        known = {tool[0]: definition(*tool[:3]) for tool in TOOLS}
        tool = known.get(name) or definition(name, "Weather of a city", {"city": "string"})
        history = [("user", question), ("assistant", "", "I call it.", [(name, arguments)]), ("tool", result)]
        add("tool result", history, [tool], has(*parts))
    blocks = documents()
    count = lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    for i in range(50):
        start, pieces = rng.randrange(len(blocks)), []
        while count("\n\n".join(pieces)) < 1850:
            pieces.append(blocks[(start + len(pieces)) % len(blocks)][:1500])
        value = "".join(rng.choice("0123456789") for _ in range(4)) if i % 2 else rng.choice(["heron", "cobalt", "Marmalade", "tulip-9", "QX71", "lantern"])
        sentence, question = NEEDLES[i % len(NEEDLES)]
        pieces.insert(rng.randrange(len(pieces) + 1), sentence.format(v=value))
        text = "\n\n".join(pieces)
        text = f"{question}\n\n{text}" if i % 4 < 2 else f"{text}\n\n{question}"
        add("needle in Markdown of about 2,000 tokens", [("user", text)], [], has(value))
    return out


if __name__ == "__main__":
    from tokenizers import Tokenizer
    tokens = Tokenizer.from_file(str(ROOT / "crates/lily/demo/tokenizer.json"))
    for kind, text, _ in prompts(tokens):
        print(json.dumps({"kind": kind, "tokens": len(tokens.encode(text).ids), "end": text[-160:]}))
