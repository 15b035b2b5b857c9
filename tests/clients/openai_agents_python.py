"""OpenAI's agents library: a tool loop over chat completions and over responses."""

import importlib.metadata
import os
import sys

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from suite import call, check, main, rule, scripted  # noqa: E402

RULES = (
    rule("It rains in Oslo.", has="<tool_response>", think="Rain."),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="I ask."),
)


@function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"rain in {city}"


def loop(kind):
    with scripted(*RULES) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        agent = Agent(name="Clerk", instructions="Help.", tools=[get_weather], model=kind("demo", client))
        result = Runner.run_sync(agent, "What is the weather in Oslo?")
    assert result.final_output == "It rains in Oslo.", result


@check
def over_chat_completions():
    loop(OpenAIChatCompletionsModel)


@check
def over_responses():
    loop(OpenAIResponsesModel)


if __name__ == "__main__":
    sys.exit(main("openai-agents", importlib.metadata.version("openai-agents")))
