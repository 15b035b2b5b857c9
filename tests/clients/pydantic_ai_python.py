"""PydanticAI: an agent with a tool, typed output, streams."""

import asyncio
import importlib.metadata
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from suite import call, check, main, rule, scripted


class City(BaseModel):
    name: str
    inhabitants: int


FINAL = call("final_result", name="Oslo", inhabitants=717710)
RULES = (
    rule(FINAL, has='"final_result"', think="The answer."),
    rule("It rains.", has="<tool_response>"),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="I ask."),
    rule('{"name":"Oslo","inhabitants":717710}', has="capital of Norway"),
    rule("One two three"),
)


def model(url):
    return OpenAIChatModel("demo", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any"))


@check
def an_agent_with_a_tool():
    with scripted(*RULES) as url:
        agent, asked = Agent(model(url)), []

        @agent.tool_plain
        def get_weather(city: str) -> str:
            asked.append(city)
            return "rain"

        assert agent.run_sync("What is the weather in Oslo?").output == "It rains."
        assert asked == ["Oslo"]


@check
def typed_output_by_a_required_tool():
    with scripted(*RULES) as url:
        result = Agent(model(url), output_type=City).run_sync("What is the capital of Norway?")
        assert result.output == City(name="Oslo", inhabitants=717710), result


@check
def typed_output_by_schema():
    with scripted(*RULES) as url:
        result = Agent(model(url), output_type=NativeOutput(City)).run_sync("What is the capital of Norway?")
        assert result.output == City(name="Oslo", inhabitants=717710), result


@check
def a_stream():
    async def read(url):
        async with Agent(model(url)).run_stream("Count") as result:
            return [text async for text in result.stream_text(delta=True)]

    with scripted(*RULES) as url:
        assert "".join(asyncio.run(read(url))) == "One two three"


if __name__ == "__main__":
    sys.exit(main("pydantic-ai-slim", importlib.metadata.version("pydantic-ai-slim")))
