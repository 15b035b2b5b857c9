"""Ollama's Python client: chat, generate, streams, tools, the list of models."""

import importlib.metadata
import sys

import ollama
from suite import URL, call, check, main, rule, scripted

RULES = (
    rule("It rains.", has="<tool_response>"),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="I ask."),
    rule('{"name":"Oslo"}', has="capital of Norway"),
    rule("One two 🌷", think="Hm."),
)
HELLO = [{"role": "user", "content": "Hello"}]


def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: Its name.
    """
    return f"rain in {city}"


@check
def models_are_listed_and_shown():
    client = ollama.Client(URL)
    (model,) = client.list().models
    assert model.model, model
    assert client.show(model.model).details is not None


@check
def chat_and_generate_of_the_demo_model():
    client = ollama.Client(URL)
    options = {"num_predict": 16, "temperature": 0}
    answer = client.chat("demo", messages=[{"role": "user", "content": "What is Lily?"}], options=options, think=False)
    assert answer.message.content and answer.done and answer.eval_count > 0, answer
    generated = client.generate("demo", prompt="What is Lily?", options=options, think=False)
    assert generated.response and generated.done, generated


@check
def streams_equal_complete_answers():
    with scripted(*RULES) as url:
        client = ollama.Client(url)
        complete = client.chat("demo", messages=HELLO, think=True).message
        assert complete.content == "One two 🌷" and complete.thinking.strip() == "Hm.", complete
        pieces = list(client.chat("demo", messages=HELLO, think=True, stream=True))
        assert "".join(piece.message.content or "" for piece in pieces) == complete.content, pieces
        assert "".join(piece.message.thinking or "" for piece in pieces) == complete.thinking, pieces
        assert pieces[-1].done and pieces[-1].done_reason == "stop", pieces[-1]


@check
def tools_are_called_and_their_results_are_read():
    with scripted(*RULES) as url:
        client, turns = ollama.Client(url), [{"role": "user", "content": "What is the weather in Oslo?"}]
        for stream in (False, True):
            answer = client.chat("demo", messages=turns, tools=[get_weather], stream=stream)
            messages = [piece.message for piece in answer] if stream else [answer.message]
            (asked,) = [one for message in messages for one in message.tool_calls or []]
            assert asked.function.name == "get_weather" and asked.function.arguments == {"city": "Oslo"}, messages
        called = next(message for message in messages if message.tool_calls)
        result = {"role": "tool", "tool_name": "get_weather", "content": get_weather("Oslo")}
        assert client.chat("demo", messages=[*turns, called, result], think=False).message.content == "It rains."


@check
def formats():
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    question = [{"role": "user", "content": "What is the capital of Norway?"}]
    with scripted(*RULES) as url:
        for form in (schema, "json"):
            answer = ollama.Client(url).chat("demo", messages=question, format=form, think=False)
            assert answer.message.content == '{"name":"Oslo"}', answer


if __name__ == "__main__":
    sys.exit(main("ollama-python", importlib.metadata.version("ollama")))
