#!/usr/bin/env python3
"""Scores what ships: the prompts of `evaluate.py`, answered greedily by a running `lily serve`.

  lily serve & score.py [--url http://127.0.0.1:8000] [--unfamiliar] [--out report.json]

The prompts go through Lily's own template, tokenizer, forward pass and parser, so this scores the demo as a client sees
it. Needs torch and tokenizers, like evaluate.py.
"""
import argparse
import collections
import json
import pathlib
import urllib.request

from tokenizers import Tokenizer

import evaluate
import heldout
import wire


def request(messages, tools, thinking):
    """An OpenAI request in place of a rendered prompt."""
    typed = []
    for i, message in enumerate(messages[:-1]):
        if message[0] == "assistant":
            _, content, reasoning, calls = message
            typed.append({"role": "assistant", "content": content, "reasoning_content": reasoning,
                          "tool_calls": [{"id": f"call_{i}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(a)}}
                                         for n, (name, a) in enumerate(calls)]})
            waiting = [call["id"] for call in typed[-1]["tool_calls"]]
            if not calls:
                del typed[-1]["tool_calls"]
        elif message[0] == "tool":
            typed.append({"role": "tool", "content": message[1], "tool_call_id": waiting.pop(0)})
        else:
            typed.append({"role": message[0], "content": message[1]})
    body = {"model": "demo", "messages": typed, "temperature": 0, "max_tokens": evaluate.NEW_TOKENS,
            "chat_template_kwargs": {"enable_thinking": thinking}}
    return ({**body, "tools": tools} if tools else body), ""


def ask(url, body):
    data = json.dumps(body).encode()
    call = urllib.request.Request(url + "/v1/chat/completions", data, {"content-type": "application/json"})
    message = json.load(urllib.request.urlopen(call, timeout=120))["choices"][0]["message"]
    calls = []
    for tool_call in message.get("tool_calls") or []:
        arguments = json.loads(tool_call["function"]["arguments"])
        calls.append((tool_call["function"]["name"], {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}))
    return (message["content"] or "").strip(), calls


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--unfamiliar", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    wire.render = request
    tokenizer = Tokenizer.from_file(str(evaluate.TOKENIZER))
    if args.unfamiliar:
        # Needle texts are measured in tokens there.
        cases = heldout.prompts(tokenizer)
    else:
        cases = evaluate.prompts()
    scores, failures = collections.defaultdict(list), []
    for kind, body, check in cases:
        content, calls = ask(args.url, body)
        good = bool(check(content, calls))
        scores[kind].append(good)
        if not good:
            failures.append({"kind": kind, "question": body["messages"][-1]["content"][-300:], "thinking": body["chat_template_kwargs"]["enable_thinking"],
                             "answer": content, "calls": calls})
    report = {"prompts": len(cases), "kinds": {k: {"right": sum(v), "of": len(v), "percent": round(100 * sum(v) / len(v), 1)} for k, v in scores.items()}}
    print(json.dumps(report, indent=1))
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({**report, "failures": failures}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
