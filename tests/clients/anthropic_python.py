"""Anthropic's Python SDK: messages, streams, tools, thinking, counting."""

import sys

import anthropic
from suite import URL, call, check, main, rule, scripted

WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
RULES = (
    rule("7 degrees and rain.", has="<tool_response>"),
    rule(call("get_weather", city="Oslo"), has="weather in Oslo", think="A question about weather."),
    rule("Good day — Здравствуйте 🌷", think="A greeting."),
)


def client(url):
    return anthropic.Anthropic(base_url=url, auth_token="any", timeout=60, max_retries=0)


def ask(url, **changes):
    fields = {"model": "scripted", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}], **changes}
    return client(url).messages.create(**fields)


@check
def a_message_of_the_demo_model():
    question = [{"role": "user", "content": "What is Lily?"}]
    # The SDK no longer has a parameter for it.
    answer = ask(URL, messages=question, max_tokens=64, extra_body={"temperature": 0})
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_"), answer
    assert answer.content[0].type == "text" and answer.content[0].text, answer
    assert answer.stop_reason in ("end_turn", "max_tokens"), answer
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer


@check
def streams_accumulate_to_the_complete_message():
    with scripted(*RULES) as url:
        complete = ask(url, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
        fields = {"model": "scripted", "max_tokens": 2000, "messages": [{"role": "user", "content": "Hello"}]}
        with client(url).messages.stream(**fields, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
    assert [block.type for block in complete.content] == ["thinking", "text"], complete
    assert complete.content[0].thinking.strip() == "A greeting.", complete
    assert complete.content[1].text == "Good day — Здравствуйте 🌷", complete
    assert [b.to_dict() for b in final.content] == [b.to_dict() for b in complete.content], final
    assert final.stop_reason == complete.stop_reason == "end_turn"
    assert final.usage.output_tokens == complete.usage.output_tokens
    assert events[0] == "message_start" and events[-1] == "message_stop", events


@check
def tools_are_called_and_their_results_are_read():
    with scripted(*RULES) as url:
        answer = ask(url, messages=QUESTION, tools=[WEATHER])
        (use,) = [block for block in answer.content if block.type == "tool_use"]
        assert answer.stop_reason == "tool_use" and use.name == "get_weather" and use.input == {"city": "Oslo"}, answer
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "7, rain"}]}
        turns = [*QUESTION, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        final = ask(url, messages=turns, tools=[WEATHER])
        assert final.content[0].text == "7 degrees and rain." and final.stop_reason == "end_turn", final


@check
def streamed_tool_calls_and_forced_ones():
    with scripted(*RULES) as url:
        for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"}):
            fields = {"model": "scripted", "max_tokens": 500, "messages": QUESTION, "tools": [WEATHER]}
            with client(url).messages.stream(**fields, tool_choice=choice) as stream:
                final = stream.get_final_message()
            (use,) = [block for block in final.content if block.type == "tool_use"]
            assert use.input == {"city": "Oslo"} and final.stop_reason == "tool_use", (choice, final)


@check
def limits_and_stop_sequences():
    with scripted(*RULES) as url:
        answer = ask(url, stop_sequences=["day"])
        assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "day", answer
        assert answer.content[0].text == "Good ", answer
        assert ask(url, max_tokens=2).stop_reason == "max_tokens"


@check
def tokens_are_counted():
    with scripted(*RULES) as url:
        fields = {"model": "scripted", "messages": [{"role": "user", "content": "Hello"}], "system": "Be kind."}
        counted = client(url).messages.count_tokens(**fields).input_tokens
        answer = client(url).messages.create(**fields, max_tokens=10)
        used = answer.usage
        assert counted == used.input_tokens + (used.cache_read_input_tokens or 0), (counted, used)


@check
def wrong_requests_raise_the_right_exceptions():
    for fields in ({"messages": []}, {"extra_body": {"temperature": 3}}, {"max_tokens": 0}):
        try:
            ask(URL, **fields)
        except anthropic.BadRequestError as error:
            assert error.body["error"]["type"] == "invalid_request_error", error.body
        else:
            raise AssertionError(f"{fields} was accepted")


if __name__ == "__main__":
    sys.exit(main("anthropic-python", anthropic.__version__))
