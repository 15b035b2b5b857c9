"""LiteLLM as a library, by its two providers for servers like this one."""

import importlib.metadata
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402: the variable must be set before
from suite import URL, call, check, main, rule, scripted  # noqa: E402

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
RULES = (rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="Weather."), rule("One two", think="Hm."))


def ask(url, provider, **changes):
    fields = {"messages": [{"role": "user", "content": "Hello"}], "api_key": "any", "num_retries": 0, **changes}
    return litellm.completion(model=f"{provider}/demo", api_base=f"{url}/v1", **fields)


@check
def a_completion_of_the_demo_model():
    answer = ask(URL, "openai", max_tokens=16, temperature=0)
    assert answer.choices[0].message.content or answer.choices[0].message.reasoning_content, answer
    assert answer.usage.completion_tokens > 0, answer


@check
def content_and_reasoning_whole_and_streamed():
    with scripted(*RULES) as url:
        for provider in ("openai", "hosted_vllm"):
            message = ask(url, provider).choices[0].message
            assert message.content == "One two" and message.reasoning_content.strip() == "Hm.", (provider, message)
            deltas = [chunk.choices[0].delta for chunk in ask(url, provider, stream=True)]
            assert "".join(delta.content or "" for delta in deltas) == "One two", (provider, deltas)
            thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
            assert thought.strip() == "Hm.", (provider, thought)


@check
def tools():
    with scripted(*RULES) as url:
        for provider in ("openai", "hosted_vllm"):
            answer = ask(url, provider, messages=QUESTION, tools=[WEATHER])
            (asked,) = answer.choices[0].message.tool_calls
            assert answer.choices[0].finish_reason == "tool_calls", answer
            assert json.loads(asked.function.arguments) == {"city": "Oslo"}, answer


@check
def errors_are_mapped():
    try:
        ask(URL, "openai", temperature=3)
    except litellm.BadRequestError as error:
        assert "temperature" in str(error), error
    else:
        raise AssertionError("accepted")


if __name__ == "__main__":
    sys.exit(main("litellm", importlib.metadata.version("litellm")))
