"""OpenAI's Python SDK: forms, forced tools, completions and responses, on scripted answers."""

import json
import sys

import openai
from pydantic import BaseModel
from suite import URL, call, check, main, rule, scripted


class Step(BaseModel):
    explanation: str
    output: str


class Solution(BaseModel):
    steps: list[Step]
    answer: int


class GetWeather(BaseModel):
    """Get the weather of a city."""

    city: str


SOLUTION = '{"steps":[{"explanation":"Add them.","output":"4"}],"answer":4}'
RULES = (
    rule("It rains.", has="<tool_response>", think="Rain."),
    rule(call("GetWeather", city="Oslo"), has="weather in Oslo", think="I ask."),
    rule(SOLUTION, has="2 + 2", think="Easy."),
    rule("One two three", think="Hm."),
)
SUM = [{"role": "user", "content": "What is 2 + 2?"}]
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]


def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=60, max_retries=0)


@check
def answers_parsed_into_a_model():
    with scripted(*RULES) as url:
        answer = client(url).chat.completions.parse(model="demo", messages=SUM, response_format=Solution)
        assert answer.choices[0].message.parsed == Solution.model_validate_json(SOLUTION), answer
        fields = {"model": "demo", "messages": SUM, "response_format": Solution}
        with client(url).chat.completions.stream(**fields) as stream:
            for _ in stream:
                pass
            assert stream.get_final_completion().choices[0].message.parsed.answer == 4


@check
def the_demo_model_is_held_to_a_form():
    fields = {"messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 500, "temperature": 0}
    schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "mood", "strict": True, "schema": schema}}
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = client(URL).chat.completions.create(model="demo", response_format=form, extra_body=off, **fields)
    assert json.loads(answer.choices[0].message.content)["mood"] in ("good", "bad"), answer


@check
def tools_required_named_and_parsed():
    tools = [openai.pydantic_function_tool(GetWeather)]
    named = {"type": "function", "function": {"name": "GetWeather"}}
    with scripted(*RULES) as url:
        for choice in ("auto", "required", named):
            answer = client(url).chat.completions.parse(model="demo", messages=QUESTION, tools=tools, tool_choice=choice)
            (asked,) = answer.choices[0].message.tool_calls
            assert asked.function.parsed_arguments == GetWeather(city="Oslo"), (choice, answer)


@check
def the_demo_model_must_call_a_tool():
    fields = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 500, "temperature": 0}
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    tools = [openai.pydantic_function_tool(GetWeather)]
    answer = client(URL).chat.completions.create(model="demo", tools=tools, tool_choice="required", extra_body=off, **fields)
    calls = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls" and calls[0].function.name == "GetWeather", answer
    assert isinstance(json.loads(calls[0].function.arguments)["city"], str), answer


@check
def legacy_completions():
    with scripted(*RULES) as url:
        fields = {"model": "demo", "prompt": "Count: ", "max_tokens": 50}
        answer = client(url).completions.create(**fields)
        assert answer.object == "text_completion" and answer.choices[0].text == "One two three", answer
        assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens > 0, answer
        pieces = list(client(url).completions.create(**fields, stream=True))
        assert "".join(p.choices[0].text for p in pieces if p.choices) == "One two three", pieces
    echoed = client(URL).completions.create(model="demo", prompt="Lily is", max_tokens=4, echo=True, logprobs=1)
    assert echoed.choices[0].text.startswith("Lily is"), echoed
    assert len(echoed.choices[0].logprobs.tokens) == len(echoed.choices[0].logprobs.token_logprobs), echoed


@check
def responses_whole_streamed_and_parsed():
    with scripted(*RULES) as url:
        answer = client(url).responses.create(model="demo", input="Count")
        assert answer.status == "completed" and answer.output_text == "One two three", answer
        with client(url).responses.stream(model="demo", input="Count") as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
        assert final.output_text == "One two three" and types[-1] == "response.completed", types
        parsed = client(url).responses.parse(model="demo", input="What is 2 + 2?", text_format=Solution)
        assert parsed.output_parsed == Solution.model_validate_json(SOLUTION), parsed


@check
def responses_with_tools_that_follow_each_other():
    tool = {"type": "function", "name": "GetWeather", "parameters": GetWeather.model_json_schema(), "strict": False}
    with scripted(*RULES) as url:
        first = client(url).responses.create(model="demo", input="What is the weather in Oslo?", tools=[tool])
        (asked,) = [item for item in first.output if item.type == "function_call"]
        assert json.loads(asked.arguments) == {"city": "Oslo"}, first
        result = {"type": "function_call_output", "call_id": asked.call_id, "output": "rain"}
        last = client(url).responses.create(model="demo", input=[result], tools=[tool], previous_response_id=first.id)
        assert last.output_text == "It rains.", last


if __name__ == "__main__":
    sys.exit(main("openai-python forms", openai.__version__))
