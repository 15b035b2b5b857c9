#!/usr/bin/env python3
"""Draws training conversations and proves that no held-out request, tool name or needle sentence is among them.

One is: the plainest needle, "The secret code is ...", which everybody tries first, is trained on.

  overlap.py [N]
"""
import collections
import random
import re
import sys

import about
import evaluate
import grammar
import heldout
import mix

HELD_OUT_TOOLS = {name for name, *_ in heldout.TOOLS}
RESULT_QUESTIONS = [question for _, question, *_ in heldout.RESULTS]


def _plain(text):
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    rng = random.Random(99)
    exact = {text.strip().lower() for text in heldout.GREETINGS}
    plain = {_plain(q) for part in about.HELD_OUT.values() for q in part} | {_plain(q) for q in heldout.UNKNOWN + RESULT_QUESTIONS}
    sums = [re.compile(re.sub(r"\\\{\w\\\}", r"\\d+", re.escape(ask)), re.I) for ask in heldout.ARITHMETIC]
    facts = [re.compile(re.escape(sentence).replace(r"\{v\}", r"\S+")) for sentence, _ in heldout.NEEDLES[1:]]
    found = collections.Counter()
    for i in range(n):
        messages, tools, _ = mix.needle_conversation(rng, 60) if i % 5 == 0 else mix.conversation(rng)
        names = {tool["function"]["name"] for tool in tools}
        found["tool names"] += bool(names & HELD_OUT_TOOLS)
        for role, text, *_ in messages:
            if role != "user":
                continue
            found["greetings"] += text.lower() in exact
            found["questions"] += _plain(text) in plain
            if tools:
                found["requests"] += grammar.held_out_request(text)
            else:
                found["sums"] += any(form.fullmatch(text) for form in sums)
                found["needles"] += any(fact.search(text) for fact in facts)
    print(dict(found), f"in {n} conversations")
    assert not grammar.too_close("what is the weather") and grammar.too_close("hey, who is this")
    sys.exit(1 if any(found.values()) else 0)


if __name__ == "__main__":
    assert evaluate.TOKENIZER.exists()
    main()
