"""Checks a running server with OpenAI's Python SDK.

    python openai_python.py http://127.0.0.1:8080

Shapes are checked strictly. What the model says is checked where the demo model was trained for it
(a call of a familiar tool at temperature 0), and otherwise only for agreeing with itself.
"""

import asyncio
import json
import re
import sys
import time
import urllib.request

import openai
from suite import URL, check, main

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="any", timeout=120, max_retries=2)

OFF = {"chat_template_kwargs": {"enable_thinking": False}}
HELLO = [{"role": "user", "content": "What is Lily?"}]
WEATHER_QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def create(**changes):
    """A deterministic chat request; `None` removes a field."""
    fields = {"model": "demo", "messages": HELLO, "temperature": 0, "max_tokens": 128, "extra_body": OFF}
    fields.update(changes)
    return client.chat.completions.create(**{k: v for k, v in fields.items() if v is not None})


def metric(name):
    with urllib.request.urlopen(f"{URL}/metrics", timeout=10) as response:
        text = response.read().decode()
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(match.group(1)) if match else 0.0


def eventually(what, condition, limit_s=20):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def check_usage(usage, reasoning):
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens, usage
    thought = usage.completion_tokens_details.reasoning_tokens
    assert (0 < thought <= usage.completion_tokens) if reasoning else thought == 0, usage


def gather(stream):
    """Folds a stream of one choice, checking the shape of every chunk."""
    content, reasoning, calls, logprobs, usage, finish, ids = "", "", {}, [], None, None, set()
    for i, chunk in enumerate(stream):
        assert chunk.object == "chat.completion.chunk" and chunk.id.startswith("chatcmpl-"), chunk
        assert chunk.created > 1_700_000_000 and chunk.model and chunk.system_fingerprint, chunk
        ids.add(chunk.id)
        if not chunk.choices:
            usage = chunk.usage
            continue
        assert usage is None, "the usage comes last"
        (choice,) = chunk.choices
        assert choice.index == 0 and finish is None, chunk
        assert (choice.delta.role == "assistant") == (i == 0), chunk
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for piece in choice.delta.tool_calls or []:
            if piece.index not in calls:
                assert piece.id.startswith("call_") and piece.type == "function", piece
                assert piece.index == len(calls) and piece.function.name, piece
                calls[piece.index] = [piece.id, piece.function.name, ""]
            else:
                assert piece.id is None and piece.function.name is None, piece
            calls[piece.index][2] += piece.function.arguments
        logprobs += choice.logprobs.content if choice.logprobs else []
        finish = choice.finish_reason
    assert len(ids) == 1, ids
    return content, reasoning, list(calls.values()), logprobs, usage, finish


@check
def models_are_listed():
    (model,) = client.models.list().data
    assert model.object == "model" and model.owned_by == "lily" and model.created > 0, model
    assert client.models.retrieve(model.id) == model


@check
def complete_answer():
    answer = create()
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    assert answer.created > 1_700_000_000 and answer.system_fingerprint and answer._request_id
    (choice,) = answer.choices
    assert choice.index == 0 and choice.message.role == "assistant", choice
    assert choice.message.content and choice.message.tool_calls is None, choice
    assert choice.message.refusal is None and choice.logprobs is None, choice
    assert choice.finish_reason in ("stop", "length"), choice
    check_usage(answer.usage, reasoning=False)
    timings = answer.timings
    assert timings["predicted_n"] == answer.usage.completion_tokens, timings
    assert timings["prompt_n"] + timings["cache_n"] == answer.usage.prompt_tokens, timings


@check
def any_model_name_is_served():
    assert create(model="gpt-nothing").model == client.models.list().data[0].id


@check
def stream_equals_complete_answer():
    complete = create()
    stream = create(stream=True, stream_options={"include_usage": True})
    content, reasoning, calls, _, usage, finish = gather(stream)
    assert content == complete.choices[0].message.content, (content, complete)
    assert finish == complete.choices[0].finish_reason and not calls and not reasoning
    assert usage.completion_tokens == complete.usage.completion_tokens, usage
    assert usage.prompt_tokens == complete.usage.prompt_tokens, usage


@check
def stream_without_usage():
    assert gather(create(stream=True))[4] is None


@check
def streaming_helper_of_the_sdk():
    # The helper takes an answer that was cut off for an error.
    fields = {"model": "demo", "messages": HELLO, "temperature": 0, "max_tokens": 1024, "extra_body": OFF}
    with client.chat.completions.stream(**fields) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content, final


@check
def content_parts_and_roles():
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "Lily?"}]
    split = create(messages=[{"role": "user", "content": parts}])
    assert split.choices[0].message.content == create().choices[0].message.content
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
        {"role": "user", "content": "What is Lily?"},
    ]
    assert create(messages=turns).choices[0].message.content


@check
def thinking_on_and_off():
    on = create(extra_body={"chat_template_kwargs": {"enable_thinking": True}}, max_tokens=512)
    thought = on.choices[0].message.reasoning_content
    assert thought and "</think>" not in thought, on
    assert "</think>" not in (on.choices[0].message.content or ""), on
    check_usage(on.usage, reasoning=True)
    for off in (create(), create(extra_body=None, reasoning_effort="none")):
        assert getattr(off.choices[0].message, "reasoning_content", None) is None, off
        check_usage(off.usage, reasoning=False)
    body = {"chat_template_kwargs": {"enable_thinking": True}}
    content, reasoning, *_ = gather(create(extra_body=body, max_tokens=512, stream=True))
    assert reasoning == thought and content == (on.choices[0].message.content or "")


@check
def tool_call_and_result_round_trip():
    for extra in (OFF, None):
        answer = create(messages=WEATHER_QUESTION, tools=WEATHER, extra_body=extra, max_tokens=512)
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls", answer
        (call,) = choice.message.tool_calls
        assert call.type == "function" and call.id.startswith("call_"), call
        assert call.function.name == "get_weather", call
        assert json.loads(call.function.arguments) == {"city": "Oslo"}, call
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 7, "condition": "rain"}'}
        messages = [*WEATHER_QUESTION, choice.message.to_dict(), result]
        final = create(messages=messages, tools=WEATHER, extra_body=extra, max_tokens=512)
        assert final.choices[0].finish_reason in ("stop", "length", "tool_calls"), final
        assert final.choices[0].message.content or final.choices[0].message.tool_calls, final


@check
def streamed_tool_call_equals_complete_one():
    complete = create(messages=WEATHER_QUESTION, tools=WEATHER, tool_choice="auto")
    stream = create(messages=WEATHER_QUESTION, tools=WEATHER, tool_choice="auto", stream=True)
    content, _, calls, _, _, finish = gather(stream)
    message = complete.choices[0].message
    assert finish == "tool_calls" and content == (message.content or ""), (finish, content)
    assert [c[1:] for c in calls] == [[c.function.name, c.function.arguments] for c in message.tool_calls]


@check
def tool_choice_none_calls_nothing():
    answer = create(messages=WEATHER_QUESTION, tools=WEATHER, tool_choice="none")
    assert answer.choices[0].message.tool_calls is None, answer
    assert answer.choices[0].finish_reason != "tool_calls", answer


@check
def logprobs():
    answer = create(logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    ending = answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens - ending <= len(entries) <= answer.usage.completion_tokens
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3, entry
        values = [top.logprob for top in entry.top_logprobs]
        assert values == sorted(values, reverse=True), entry
        assert bytes(entry.bytes).decode(errors="replace") == entry.token, entry
        assert entry.token == entry.top_logprobs[0].token, "greedy takes the most likely token"
    said = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert answer.choices[0].message.content.strip() in said, (said, answer)
    streamed = gather(create(logprobs=True, top_logprobs=3, stream=True))[3]
    assert [e.token for e in streamed] == [e.token for e in entries]


@check
def stop_strings():
    text = create().choices[0].message.content
    stop = text[2:5]
    for value in (stop, [stop, "never written"]):
        answer = create(stop=value)
        assert answer.choices[0].message.content == text[: text.index(stop)], answer
        assert answer.choices[0].finish_reason == "stop", answer
    content, *_, finish = gather(create(stop=stop, stream=True))
    assert content == text[: text.index(stop)] and finish == "stop", content


@check
def length_limits():
    answer = create(max_tokens=1)
    assert answer.choices[0].finish_reason == "length", answer
    assert answer.usage.completion_tokens == 1, answer
    answer = create(max_tokens=None, max_completion_tokens=2)
    assert answer.usage.completion_tokens == 2, answer
    assert create(max_tokens=10**9).choices[0].message.content


@check
def several_choices_with_a_seed():
    fields = {"n": 3, "seed": 7, "temperature": 1, "max_tokens": 24}
    first, second = create(**fields), create(**fields)
    assert [c.index for c in first.choices] == [0, 1, 2], first
    texts = [[c.message.content for c in answer.choices] for answer in (first, second)]
    assert texts[0] == texts[1], texts
    alone = create(**{**fields, "n": 1, "seed": 8}).choices[0].message.content
    assert alone == texts[0][1], "choice i draws with seed + i"


@check
def cancelled_stream_stops_the_computation():
    cancelled = metric("lily_requests_cancelled_total")
    stream = create(stream=True, max_tokens=None, extra_body={**OFF, "ignore_eos": True})
    for _, _ in zip(range(5), stream):
        pass
    assert metric("lily_requests_running") >= 1
    stream.close()
    eventually("the request ends", lambda: metric("lily_requests_running") == 0)
    assert metric("lily_requests_cancelled_total") == cancelled + 1
    generated = metric("lily_generated_tokens_total")
    time.sleep(0.3)
    assert metric("lily_generated_tokens_total") == generated, "tokens are still being generated"


@check
def cancelled_complete_request_stops_the_computation():
    cancelled = metric("lily_requests_cancelled_total")
    hasty = client.with_options(timeout=0.25, max_retries=0)
    try:
        body = {**OFF, "ignore_eos": True}
        hasty.chat.completions.create(model="demo", messages=HELLO, temperature=0, extra_body=body)
    except openai.APITimeoutError:
        eventually("the request ends", lambda: metric("lily_requests_running") == 0)
        assert metric("lily_requests_cancelled_total") == cancelled + 1
    else:
        raise AssertionError("a quarter of a second was enough to fill the context")


@check
def twenty_requests_at_once():
    async def ask(aclient, i):
        fields = {"model": "demo", "messages": HELLO, "temperature": 0, "max_tokens": 32, "extra_body": OFF}
        if i % 2 == 0:
            answer = await aclient.chat.completions.create(**fields)
            return answer.choices[0].message.content
        text = ""
        async for chunk in await aclient.chat.completions.create(**fields, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="any", max_retries=8) as aclient:
            return await asyncio.gather(*(ask(aclient, i) for i in range(20)))

    texts = asyncio.run(all_of_them())
    assert len(texts) == 20 and all(texts), texts
    eventually("all end", lambda: metric("lily_requests_running") + metric("lily_requests_queued") == 0)


@check
def bad_requests_raise_the_right_exceptions():
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    for param, fields in [
        ("temperature", {"temperature": 3}),
        ("messages", {"messages": []}),
        ("messages[0].role", {"messages": [{"role": "robot", "content": "hi"}]}),
        ("messages[0].content[0]", {"messages": [{"role": "user", "content": image}]}),
        ("n", {"n": 0}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 99}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": ""}}]}),
        ("stop", {"stop": ""}),
        ("max_tokens", {"max_tokens": 0}),
        ("chat_template_kwargs.enable_thinking", {"extra_body": {"chat_template_kwargs": {"enable_thinking": "no"}}}),
    ]:
        for stream in (False, True):
            try:
                create(stream=stream, **fields)
            except openai.BadRequestError as error:
                assert error.param == param, (param, error)
                assert error.type == "invalid_request_error" and error.code, error
                assert param in error.message, error
            else:
                raise AssertionError(f"{fields} was accepted")
    for call in (lambda: client.models.retrieve("nothing"), lambda: client.embeddings.create(model="x", input="y")):
        try:
            call()
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("found what is not there")


@check
def a_prompt_beyond_the_context_is_refused():
    words = "word " * (client.models.list().data[0].max_model_len + 10)
    try:
        create(messages=[{"role": "user", "content": words}])
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error
    else:
        raise AssertionError("accepted")


if __name__ == "__main__":
    sys.exit(main("openai-python", openai.__version__))
