"""smolagents: an agent that calls tools, and one that writes code."""

import importlib.metadata
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool
from suite import call, check, main, rule, scripted

RULES = (
    rule(call("final_answer", answer="It rains."), has="rain in Oslo", think="I know."),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="I ask."),
    rule("Thought: I multiply.\n<code>\nfinal_answer(6 * 7)\n</code>", has="six times seven"),
)


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: Its name.
    """
    return f"rain in {city}"


def model(url):
    return OpenAIServerModel("demo", api_base=f"{url}/v1", api_key="any")


@check
def a_tool_calling_agent():
    with scripted(*RULES) as url:
        agent = ToolCallingAgent(tools=[get_weather], model=model(url), max_steps=4, verbosity_level=0)
        assert agent.run("What is the weather in Oslo?") == "It rains."


@check
def a_code_agent():
    with scripted(*RULES) as url:
        agent = CodeAgent(tools=[], model=model(url), max_steps=2, verbosity_level=0)
        assert agent.run("What is six times seven?") == 42


if __name__ == "__main__":
    sys.exit(main("smolagents", importlib.metadata.version("smolagents")))
