"""LangChain's ChatOpenAI: invoke, stream, tools, structured output."""

import importlib.metadata
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from suite import URL, call, check, main, rule, scripted


class City(BaseModel):
    """A city and how many live there."""

    name: str
    inhabitants: int


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It rains in {city}."


RULES = (
    rule("It rains in Oslo.", has="<tool_response>"),
    rule(call("City", name="Oslo", inhabitants=717710), has="<function=City>"),
    rule(call("City", name="Oslo", inhabitants=717710), has=["# Tools", '"City"']),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo"),
    rule('{"name":"Oslo","inhabitants":717710}', has="capital of Norway"),
    rule("One two three"),
)


def chat(url, **more):
    return ChatOpenAI(model="demo", base_url=f"{url}/v1", api_key="any", temperature=0, max_retries=0, **more)


@check
def invoke_and_stream_the_demo_model():
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    model = chat(URL, max_tokens=32, extra_body=extra)
    complete = model.invoke("What is Lily?")
    assert complete.content and complete.usage_metadata["output_tokens"] > 0, complete
    assert "".join(chunk.content for chunk in model.stream("What is Lily?")) == complete.content


@check
def a_stream_in_pieces_with_usage():
    with scripted(*RULES) as url:
        pieces = list(chat(url, stream_usage=True).stream("Count"))
    assert "".join(piece.content for piece in pieces) == "One two three", pieces
    assert any(piece.usage_metadata for piece in pieces), pieces


@check
def bound_tools_make_a_loop():
    with scripted(*RULES) as url:
        model = chat(url).bind_tools([get_weather])
        turns = [HumanMessage("What is the weather in Oslo?")]
        turns.append(model.invoke(turns))
        (asked,) = turns[-1].tool_calls
        assert asked["name"] == "get_weather" and asked["args"] == {"city": "Oslo"}, turns
        turns.append(ToolMessage(get_weather.invoke(asked["args"]), tool_call_id=asked["id"]))
        assert model.invoke(turns).content == "It rains in Oslo."
        streamed = None
        for chunk in model.stream("What is the weather in Oslo?"):
            streamed = chunk if streamed is None else streamed + chunk
        assert streamed.tool_calls[0]["args"] == {"city": "Oslo"}, streamed


@check
def structured_output_by_schema_by_tool_and_by_json_mode():
    with scripted(*RULES) as url:
        for method in ("json_schema", "function_calling", "json_mode"):
            model = chat(url).with_structured_output(City, method=method)
            city = model.invoke("What is the capital of Norway?")
            assert city == City(name="Oslo", inhabitants=717710), (method, city)


if __name__ == "__main__":
    sys.exit(main("langchain-openai", importlib.metadata.version("langchain-openai")))
