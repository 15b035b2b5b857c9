"""Conversations with tools: which to call, with what, and what to say of the result."""
import json

import tooling
import values
import words

SYSTEM = ["You are a helpful assistant.", "Be brief.", "Use tools when needed.", "You are Lily.", "You are a helpful assistant with access to tools.", "Call functions to help the user.", "Answer shortly.", "Use the functions where they help.", "You can use tools. Do not guess.", "You control a smart home.", "You are an assistant of a company."]
JOINERS = [", and ", " and ", ". Also, ", ". Also, ", ". Then ", "? And ", ". After that ", ". And ", ", then ", "; ", "\n", ". Next: ", ". Besides, ", ", and also ", ". Oh, and ", ". Second: ", " plus "]
POLITE = ["", "", "", "", "", "", "", "", "please ", "hi, ", "hey, ", "hello! ", "can you help? ", "ok, ", "quick: ", "now ", "hey lily, ", "i have a request: ", "could you do this for me: "]
QUESTION_WORDS = ("what", "how", "is", "are", "who", "where", "when", "which", "do", "does", "did", "can", "could", "will", "would", "whose", "has", "was", "must", "should", "why")


def _ending(rng, text):
    asks = text.split()[0].lower().strip("',") in QUESTION_WORDS or "what's" in text.lower()[:8]
    return rng.choice(["?", "?", "?", "?", "", "", " please?"] if asks else ["", "", "", ".", ".", "!", " please", ", please", ".", " please."])


def _styled(rng, asked):
    """A request as a whole message."""
    text, _, value_first = asked
    before = rng.choice(POLITE)
    if before:
        text, value_first = before + text, False
    if not value_first and rng.random() < 0.6:
        text = text[0].upper() + text[1:]
    return text + _ending(rng, asked[0])


def result_of(rng, tool):
    """(text the tool returns, what to say of it)"""
    makers = {"temperature": lambda: rng.randint(-15, 38), "weather": lambda: rng.choice(["sunny", "cloudy", "rain", "snow", "windy", "fog", "clear"]), "condition": lambda: rng.choice(["sunny", "cloudy", "rain", "fair"]), "time": lambda: values.time_of_day(rng),
              "status": lambda: rng.choice(["ok", "done", "sent", "set", "saved", "queued", "started", "booked"]), "result": lambda: rng.randint(0, 99999), "price": lambda: round(rng.uniform(1, 900), 2), "amount": lambda: round(rng.uniform(1, 900), 2), "age": lambda: rng.randint(5, 95), "count": lambda: rng.randint(0, 500),
              "open": lambda: rng.random() < 0.5, "success": lambda: True, "ok": lambda: True, "number": lambda: rng.randint(1, 999), "size": lambda: rng.randint(1, 99999)}
    pairs = {key: makers.get(key, lambda: rng.choice([values.code, values.word, values.anything, lambda r: r.randint(0, 9999), values.phrase])(rng))() for key in tool.results}
    if rng.random() < 0.15:
        pairs[f"{rng.choice(tooling.QUALITIES)}_{rng.choice(['id', 'code', 'name', 'value', 'total'])}"] = values.code(rng)
    say = lambda key, value: f"the {key.replace('_', ' ')} is {json.dumps(value) if isinstance(value, bool) else value}"
    told = ", ".join(say(k, v) for k, v in pairs.items())
    form = rng.randrange(12)
    if form < 3:
        value = next(iter(pairs.values()))
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        return text, f"the answer is {text}"
    if form == 3:
        return rng.choice([", ", "\n"]).join(f"{k}: {json.dumps(v) if isinstance(v, bool) else v}" for k, v in pairs.items()), told
    if form == 4:
        items = [rng.choice([words.noun, values.word, values.full_name])(rng) for _ in range(rng.randint(2, 4))]
        key = rng.choice(["results", "items", "matches", "entries", "names"])
        return (json.dumps(items) if rng.random() < 0.3 else json.dumps({key: items})), f"I found {', '.join(items)}"
    if form == 5:
        error = rng.choice(["not found", "permission denied", "timeout", f"unknown {values.word(rng)}", "no connection", "invalid request", "out of range", f"{values.code(rng)} does not exist"])
        return rng.choice([json.dumps({"error": error}), f"Error: {error}", json.dumps({"status": "error", "message": error})]), f"it did not work: {error}"
    if form == 6:
        return json.dumps({rng.choice(["result", "data", "response", "output"]): pairs}), told
    return json.dumps(pairs, indent=rng.choice([None, None, None, 2])), told


def _exchange(rng, chosen, asked, finish):
    """The messages of a request; with `finish`, the results and what is said of them are there too."""
    calls = [(tool.name, arguments) for tool, (_, arguments, _) in zip(chosen, asked)]
    reasoning = "I call " + " and ".join(name for name, _ in calls) + "."
    if not finish:
        return [("assistant", "", reasoning, calls)]
    messages, said = [("assistant", "", reasoning, calls)], []
    for tool in chosen:
        text, told = result_of(rng, tool)
        messages.append(("tool", text))
        said.append(told)
    answer = "; ".join(said)
    return messages + [("assistant", answer[0].upper() + answer[1:] + ".", "The tool answered.", [])]


def _request(rng, tools):
    """(question, tools to call, what was asked of each)"""
    draw = rng.random()
    n_calls = 1 if draw < 0.7 else 2 if draw < 0.97 else 3
    if n_calls > 1 and rng.random() < 0.4:
        chosen = [rng.choice(tools)] * n_calls
    else:
        chosen = rng.sample(tools, min(n_calls, len(tools)))
    first = chosen[0]
    if len(chosen) == 2 and chosen[1] is first and len(first.parameters) == 1 and rng.random() < 0.6 and not first.parameters[0].is_list:
        asked = first.ask(rng)
        if len(asked[1]) == 1:  # one request with two values
            key, value = next(iter(asked[1].items()))
            shown = first.parameters[0].shown(rng, value)
            other = first.parameters[0].value(rng)
            if asked[0].count(shown) == 1 and not isinstance(value, bool):
                text = asked[0].replace(shown, f"{shown}{rng.choice([' and ', ' and ', ', and ', ' and also '])}{other}")
                return _styled(rng, (text, None, asked[2])), chosen, [asked, (text, {key: other}, False)]
    asked = [tool.ask(rng) for tool in chosen]
    question = _styled(rng, asked[0])
    if len(asked) > 1 and rng.random() < 0.12:
        question = rng.choice(["", "Two things:\n", "Please do this:\n", "My list:\n"]) + "\n".join(f"{i + 1}. {text}" for i, (text, _, _) in enumerate(asked))
        return question, chosen, asked
    for text, _, value_first in asked[1:]:
        joiner = rng.choice(JOINERS)
        if not value_first and rng.random() < 0.3 and joiner.rstrip(" ").endswith((".", "?", "\n")):
            text = text[0].upper() + text[1:]
        question = question.rstrip(".?!").removesuffix(" please").removesuffix(",") + joiner + text
    if len(asked) > 1:
        question += rng.choice(["", "", ".", "?", " please"])
    return question, chosen, asked


def conversation(rng, other):
    """(messages, tools). `other(rng)` gives a question that needs no tool."""
    tools = tooling.offered(rng, rng.choice([1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8]))
    messages = [("system", rng.choice(SYSTEM))] if rng.random() < 0.25 else []
    if rng.random() < 0.1:  # an earlier request
        question, chosen, asked = _request(rng, tools)
        messages += [("user", question), *_exchange(rng, chosen, asked, True)]
    elif rng.random() < 0.05:
        question, answer, reasoning = other(rng)
        messages += [("user", question), ("assistant", answer, reasoning, [])]
    if rng.random() < 0.1:
        question, answer, reasoning = other(rng)
        return messages + [("user", question), ("assistant", answer, reasoning + " No tool is needed.", [])], tools
    question, chosen, asked = _request(rng, tools)
    return messages + [("user", question), *_exchange(rng, chosen, asked, rng.random() < 0.3)], tools


def dialogue(rng, other, turns):
    """Like `conversation`, with several requests to the same tools, most of them carried out."""
    messages, tools = conversation(rng, other)
    for _ in range(turns - 1):
        if rng.random() < 0.1:
            question, answer, reasoning = other(rng)
            messages += [("user", question), ("assistant", answer, reasoning + " No tool is needed.", [])]
        else:
            question, chosen, asked = _request(rng, tools)
            messages += [("user", question), *_exchange(rng, chosen, asked, rng.random() < 0.5)]
    return messages, tools
