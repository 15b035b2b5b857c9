"""Conversations with tools. Some tools are familiar, most are invented, so that names and arguments must be copied."""
import json

import words

S, I, N, B = "string", "integer", "number", "boolean"


def _value(rng, name, kind):
    if kind == I:
        return rng.choice([rng.randint(1, 20), rng.randint(1, 100), rng.randint(1, 3000)])
    if kind == N:
        return rng.choice([rng.randint(1, 500), round(rng.uniform(0, 100), 1)])
    if kind == B:
        return rng.random() < 0.5
    makers = {"city": words.city, "location": words.city, "destination": words.city, "place": words.city, "name": words.proper, "person": words.proper, "to": words.proper,
              "recipient": words.proper, "artist": words.proper, "day": lambda r: r.choice(words.DAYS), "date": _date, "time": words.time_of_day,
              "language": lambda r: r.choice("French German Spanish Italian Japanese Latin Greek Dutch Polish Turkish".split()),
              "colour": lambda r: r.choice(words.COLOURS), "color": lambda r: r.choice(words.COLOURS), "symbol": _symbol, "currency": _symbol,
              "text": words.sentence, "message": words.sentence, "query": _query, "title": _query, "subject": _query, "expression": _expression,
              "path": lambda r: f"/{words.noun(r)}/{words.noun(r)}.txt", "file": lambda r: f"{words.noun(r)}.{r.choice(['txt', 'md', 'py', 'csv'])}",
              "email": lambda r: f"{r.choice(words.NAMES).lower()}@{words.noun(r)}.org", "id": words.code, "code": words.code, "room": words.noun}
    return makers.get(name, lambda r: r.choice([words.noun(r), words.code(r), words.proper(r)]))(rng)


def _date(rng):
    return rng.choice([f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}", f"{rng.choice(words.MONTHS)} {rng.randint(1, 28)}", "tomorrow", "today"])


def _symbol(rng):
    return "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.choice([3, 3, 4])))


def _query(rng):
    return " ".join(words.noun(rng) for _ in range(rng.randint(1, 3)))


def _expression(rng):
    return rng.choice(["{} + {}", "{} * {}", "{} - {}", "{}+{}", "{} / {}"]).format(rng.randint(1, 999), rng.randint(1, 999))


# name, description, parameters, ways to ask (with {parameter}), keys of a result
FAMILIAR = [
    ("get_weather", "Get the weather of a city.", {"city": S}, ["What is the weather in {city}?", "How is the weather in {city}?", "weather {city}", "Is it raining in {city}?", "What's the weather like in {city}?", "Tell me the weather in {city}", "Do I need an umbrella in {city}?", "What is the weather like in {city} today?", "How warm is it in {city}?"], ["temperature", "condition"]),
    ("get_weather", "Returns the current weather for a location", {"location": S}, ["What is the weather in {location}?", "weather in {location} please", "How cold is it in {location}?", "What's the weather like in {location} right now?", "Check the weather for {location}."], ["temperature", "condition"]),
    ("get_current_weather", "Get the current weather in a given location", {"location": S}, ["What's the weather in {location}?", "How is the weather in {location} now?", "Is it warm in {location}?"], ["temperature", "condition"]),
    ("get_forecast", "Weather forecast for some days", {"city": S, "days": I}, ["Give me the forecast for {city} for {days} days.", "What will the weather be in {city} in the next {days} days?", "{days} day forecast for {city}"], ["forecast"]),
    ("get_time", "Current time in a city", {"city": S}, ["What time is it in {city}?", "Tell me the time in {city}.", "time in {city}?", "What's the local time in {city}?"], ["time"]),
    ("set_timer", "Start a timer", {"minutes": I}, ["Set a timer for {minutes} minutes.", "Timer {minutes} minutes please", "Remind me in {minutes} minutes", "Start a {minutes} minute timer"], ["status"]),
    ("set_alarm", "Set an alarm", {"time": S}, ["Wake me at {time}.", "Set an alarm for {time}.", "alarm at {time}"], ["status"]),
    ("send_email", "Send an email", {"to": S, "subject": S}, ["Send an email to {to} about {subject}.", "Write to {to} with the subject {subject}", "Email {to}: {subject}"], ["status"]),
    ("send_message", "Send a text message to a person", {"recipient": S, "message": S}, ["Send {recipient} this message: {message}", "Tell {recipient}: {message}", "Text {recipient} \"{message}\""], ["status"]),
    ("calculator", "Evaluate an arithmetic expression", {"expression": S}, ["Calculate {expression}", "What is {expression}?", "Compute {expression} with the calculator", "Use the calculator: {expression}"], ["result"]),
    ("add", "Add two numbers", {"a": I, "b": I}, ["Add {a} and {b}.", "What is {a} plus {b}?", "Use the tool to add {a} and {b}", "{a} + {b}?", "Please compute {a}+{b}"], ["result"]),
    ("multiply", "Multiply two numbers", {"a": I, "b": I}, ["Multiply {a} by {b}.", "What is {a} times {b}?", "{a} * {b}", "Compute {a} x {b}"], ["result"]),
    ("search_web", "Search the web", {"query": S}, ["Search the web for {query}.", "Look up {query}", "Find something about {query} on the web", "google {query}"], ["results"]),
    ("search", "Search for documents", {"query": S}, ["Search for {query}.", "Find documents about {query}", "search {query}"], ["results"]),
    ("play_song", "Play music", {"title": S, "artist": S}, ["Play {title} by {artist}.", "I want to hear {title} from {artist}", "Put on {title} by {artist}"], ["status"]),
    ("translate", "Translate a text", {"text": S, "language": S}, ["Translate to {language}: {text}", "How do you say \"{text}\" in {language}?", "Translate \"{text}\" into {language}."], ["translation"]),
    ("create_event", "Add an event to the calendar", {"title": S, "date": S}, ["Add {title} to my calendar on {date}.", "Create an event {title} for {date}", "Schedule {title} on {date}"], ["id", "status"]),
    ("get_stock_price", "Current price of a stock", {"symbol": S}, ["What is the price of {symbol}?", "stock price {symbol}", "How is {symbol} trading?", "Get the stock price of {symbol}"], ["price"]),
    ("book_table", "Book a table in a restaurant", {"restaurant": S, "people": I}, ["Book a table for {people} at {restaurant}.", "Reserve a table at {restaurant} for {people} people"], ["confirmation"]),
    ("turn_on_light", "Switch on the light of a room", {"room": S}, ["Turn on the light in the {room}.", "Light on in the {room}", "Make it bright in the {room}, please"], ["status"]),
    ("set_light", "Set the colour of a lamp", {"room": S, "color": S}, ["Make the light in the {room} {color}.", "Set the {room} lamp to {color}"], ["status"]),
    ("read_file", "Read a file", {"path": S}, ["Read {path}.", "What is in {path}?", "Show me the file {path}", "cat {path}", "Open {path}"], ["content"]),
    ("write_file", "Write text to a file", {"path": S, "text": S}, ["Write \"{text}\" to {path}.", "Save this in {path}: {text}"], ["status"]),
    ("get_user", "Look up a user", {"name": S}, ["Who is {name}? Look it up.", "Find the user {name}.", "Look up {name} in the user database", "Get the record of {name}"], ["age", "city"]),
    ("convert_currency", "Convert an amount between currencies", {"amount": N, "from": "currency", "to": "currency"}, ["Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?", "{amount} {from} in {to}"], ["amount"]),
    ("find_flights", "Search flights", {"destination": S, "date": S}, ["Find flights to {destination} on {date}.", "I want to fly to {destination} {date}", "flights to {destination}, {date}"], ["flight", "price"]),
]

VERBS = "get find open close start stop lock unlock move count check update delete create list load save print scan rename measure order cancel book show clean repair sort merge fetch compare".split()
PARAMETERS = [("city", S), ("name", S), ("count", I), ("day", S), ("date", S), ("time", S), ("colour", S), ("id", S), ("code", S), ("limit", I), ("size", I), ("room", S), ("place", S),
              ("person", S), ("level", I), ("price", N), ("weight", N), ("urgent", B), ("verbose", B), ("path", S), ("file", S), ("language", S), ("query", S), ("speed", N), ("email", S)]
PHRASES = ["{v} the {n}", "please {v} the {n}", "Can you {v} the {n}", "{v} a {n}", "I need you to {v} the {n}", "Could you {v} the {n}", "I want to {v} the {n}", "now {v} the {n}"]


def _schema_value(rng, name, kind):
    return _value(rng, "symbol" if kind == "currency" else name, S if kind == "currency" else kind)


class Tool:
    def __init__(self, rng, name, description, parameters, asks, results):
        self.name, self.parameters, self.asks, self.results = name, parameters, asks, results
        properties = {}
        for key, kind in parameters.items():
            entry = {"type": S if kind == "currency" else kind}
            if rng.random() < 0.3:
                entry["description"] = rng.choice([f"The {key}", f"{key} of the {name.split('_')[-1]}", key.capitalize()])
            properties[key] = entry
        schema = {"type": "object", "properties": properties}
        if rng.random() < 0.8:
            schema["required"] = list(parameters)
        if rng.random() < 0.2:
            schema["additionalProperties"] = False
        function = {"name": name}
        if rng.random() < 0.95:
            function["description"] = description
        function["parameters"] = schema
        if rng.random() < 0.1:
            function["strict"] = True
        self.definition = {"type": "function", "function": function}

    def ask(self, rng):
        """(text, arguments)"""
        values = {key: _schema_value(rng, key, kind) for key, kind in self.parameters.items()}
        text = rng.choice(self.asks)
        for key, value in values.items():
            shown = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
            text = text.replace("{" + key + "}", shown)
        return text, values


def familiar(rng):
    return Tool(rng, *rng.choice(FAMILIAR))


def invented(rng):
    verb, thing = words.invented(rng) if rng.random() < 0.1 else rng.choice(VERBS), words.noun(rng)
    parameters = dict(rng.sample(PARAMETERS, rng.choice([1, 1, 2, 2, 3])))
    if rng.random() < 0.1:
        parameters = {words.invented(rng): rng.choice([S, S, I]) for _ in parameters}
    asks = []
    for _ in range(2):
        text = rng.choice(PHRASES).format(v=verb, n=thing)
        parts = [rng.choice(["{k} {{{k}}}", "{k} {{{k}}}", "the {k} {{{k}}}", "{k}={{{k}}}", "{k}: {{{k}}}"]).format(k=key) for key in parameters]
        text += rng.choice([" with ", " for ", ", ", " using "]) + rng.choice([" and ", ", "]).join(parts) + rng.choice(["", ".", "?", " please"])
        asks.append(rng.choice([text, text[0].upper() + text[1:]]))
    name = rng.choice([f"{verb}_{thing}", f"{verb}_{thing}", f"{verb}{thing.capitalize()}", f"{thing}_{verb}", f"{thing}.{verb}"])
    description = rng.choice([f"{verb.capitalize()} the {thing}", f"{verb.capitalize()} a {thing}.", f"Can {verb} the {thing}"])
    return Tool(rng, name, description, parameters, asks, [rng.choice(["status", "result", "id", "value", "count", "state", "answer"]) for _ in range(rng.choice([1, 1, 2]))])


def offered(rng, n):
    tools = {}
    while len(tools) < n:
        tool = (familiar if rng.random() < 0.45 else invented)(rng)
        tools.setdefault(tool.name, tool)
    return list(tools.values())


def result_of(rng, tool):
    """(text the tool returns, [(key, value)])"""
    makers = {"temperature": lambda: rng.randint(-15, 38), "condition": lambda: rng.choice(["sunny", "cloudy", "rain", "snow", "windy", "fog", "clear"]),
              "time": lambda: words.time_of_day(rng), "status": lambda: rng.choice(["ok", "done", "sent", "set", "saved", "failed"]), "result": lambda: rng.randint(0, 99999),
              "price": lambda: round(rng.uniform(1, 900), 2), "amount": lambda: round(rng.uniform(1, 900), 2), "age": lambda: rng.randint(5, 95), "city": lambda: words.city(rng),
              "count": lambda: rng.randint(0, 500)}
    pairs = list(dict((key, makers.get(key, lambda: rng.choice([words.code(rng), words.noun(rng)]))()) for key in tool.results).items())
    form = rng.randrange(4)
    if form == 0 and len(pairs) == 1:
        return str(pairs[0][1]), pairs
    if form == 1:
        return ", ".join(f"{k}: {v}" for k, v in pairs), pairs
    return json.dumps(dict(pairs)), pairs


def report(pairs):
    return ", ".join(f"the {key} is {value}" for key, value in pairs)


def conversation(rng, other):
    """(messages, tools). `other(rng)` gives a question that needs no tool."""
    tools = offered(rng, rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6]))
    messages = [("system", rng.choice(["You are a helpful assistant.", "Be brief.", "Use tools when needed.", "You are Lily."]))] if rng.random() < 0.25 else []
    kind = rng.random()
    if kind < 0.15:
        question, answer, reasoning = other(rng)
        return messages + [("user", question), ("assistant", answer, reasoning + " No tool is needed.", [])], tools
    n_calls = 1 if kind < 0.72 else 2
    if n_calls == 2 and rng.random() < 0.5:
        chosen = [rng.choice(tools)] * 2
    else:
        chosen = rng.sample(tools, min(n_calls, len(tools)))
    asked = [tool.ask(rng) for tool in chosen]
    if len(asked) == 2 and chosen[0] is chosen[1] and len(chosen[0].parameters) == 1 and rng.random() < 0.6:
        key = next(iter(chosen[0].parameters))
        first, second = asked[0][1][key], asked[1][1][key]
        asked[0] = (chosen[0].asks[0].replace("{" + key + "}", f"{first}{rng.choice([' and ', ' and in ', ' and '])}{second}"), asked[0][1])
        question = asked[0][0]
    else:
        question = asked[0][0]
        if len(asked) == 2:
            second = asked[1][0]
            question = question.rstrip(".?") + rng.choice([", and ", " and ", ". Also, ", ". Then ", "? And "]) + second[0].lower() + second[1:]
    calls = [(tool.name, arguments) for tool, (_, arguments) in zip(chosen, asked)]
    reasoning = "I call " + " and ".join(name for name, _ in calls) + "."
    messages.append(("user", question))
    if rng.random() < 0.62:
        return messages + [("assistant", "", reasoning, calls)], tools
    messages.append(("assistant", "", reasoning, calls))
    said = []
    for tool, _ in zip(chosen, calls):
        text, pairs = result_of(rng, tool)
        messages.append(("tool", text))
        said.append(report(pairs))
    answer = "; ".join(said)
    return messages + [("assistant", answer[0].upper() + answer[1:] + ".", "The tool answered.", [])], tools
