"""The mixture of examples: rows of token ids with a loss weight per token."""
import random

import about
import grammar
import needle
import skills
import sums
import toolcalls
import wire

# kind: share of the conversations that are not needles.
KINDS = [("about", 0.12), ("small talk", 0.04), ("introduction", 0.02), ("arithmetic", 0.10), ("copying", 0.08), ("unknown", 0.05), ("tools", 0.59)]
# What fills the end of a row: short ones.
FILLERS = [("about", 0.35), ("small talk", 0.15), ("introduction", 0.05), ("arithmetic", 0.2), ("copying", 0.15), ("unknown", 0.1)]
SYSTEM = ["You are a helpful assistant.", "You are Lily's demo model.", "Be brief.", "Answer in one sentence.", "You are a friendly assistant.", "Help the user.", "You are a helpful, honest assistant.", "Answer politely.", "You are an expert.", "Be kind.",
          "Today is Monday.", "Answer the questions of the user.", "Do not make things up.", "You are an AI assistant.", "Keep it short.", "Speak English."]


def no_tool(rng):
    return rng.choice([about.example, about.example, skills.small_talk, skills.small_talk, skills.copying, skills.introduction, skills.introduction,
                       skills.unknown if rng.random() < 0.4 else about.example])(rng)


def _sum(rng, thinking=False):
    """Without thinking, the steps are in the answer."""
    question, answer, steps = sums.example(rng)
    if steps and not thinking:
        return question, f"{steps} So {answer}", steps
    return question, answer, steps or "I know this one."


MAKERS = {"about": about.example, "small talk": skills.small_talk, "introduction": skills.introduction, "arithmetic": _sum,
          "copying": skills.copying, "unknown": skills.unknown}


def conversation(rng, kind=None):
    """(messages, tools, thinking); the last message is the answer to learn."""
    thinking = rng.random() < 0.5
    kind = kind or rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
    if kind == "tools":
        # Reading the tools is most of the work, so most of these ask for more than one thing.
        messages, tools = toolcalls.dialogue(rng, no_tool, 1 if rng.random() < 0.35 else rng.randint(2, 7))
        if any(message[0] == "user" and grammar.held_out_request(message[1]) for message in messages):
            return conversation(rng, kind)
        return messages, [tool.definition for tool in tools], thinking
    messages = [("system", rng.choice(SYSTEM))] if rng.random() < 0.15 else []
    if rng.random() < 0.2:  # earlier turns, whose reasoning the template drops
        for _ in range(rng.randint(1, 3)):
            question, answer, _ = rng.choice(list(MAKERS.values()))(rng)
            messages += [("user", question), ("assistant", answer, "", [])]
    question, answer, reasoning = _sum(rng, thinking) if kind == "arithmetic" else MAKERS[kind](rng)
    return messages + [("user", question), ("assistant", answer, reasoning, [])], [], thinking


def needle_conversation(rng, n_words):
    if rng.random() < 0.3:
        turns = [needle.example(rng, n_words)]
    else:
        turns = needle.dialogue(rng, n_words, rng.randint(2, 4 + n_words // 100))
    messages = [("system", rng.choice(SYSTEM))] if rng.random() < 0.1 else []
    for question, answer, reasoning in turns:
        messages += [("user", question), ("assistant", answer, reasoning, [])]
    return messages, [], rng.random() < 0.5


class Rows:
    """Endless rows of `length` tokens: (ids, weights, number of the conversation). A row holds several."""

    # Prompts teach copying and grammar too, but the answers are what counts.
    PROMPT_WEIGHT = 0.06

    def __init__(self, tokenizer, seed, length, needle_words):
        self.tokenizer, self.length, self.needle_words = tokenizer, length, needle_words
        self.rng = random.Random(seed)

    def conversation(self):
        rng = self.rng
        if self.needle_words and rng.random() < self.needle_words[0]:
            low, high = self.needle_words[1:]
            return needle_conversation(rng, rng.randint(low, high))
        return conversation(rng)

    def encoded(self, conversation, room):
        """(ids, weights) of as many of its turns as fit; empty if none does."""
        ids, weights, end = [], [], 0
        for text, answer in wire.segments(*conversation):
            part = self.tokenizer.encode(text, add_special_tokens=False).ids
            ids += part
            weights += [1.0 if answer else self.PROMPT_WEIGHT] * len(part)
            if len(ids) > room:
                break
            if answer:
                end = len(ids)
        return ids[:end], weights[:end]

    def row(self):
        ids, weights, doc = [], [], []
        n = misfits = 0
        while (room := self.length - len(ids)) > 0 and misfits < 5:
            short = conversation(self.rng, self.rng.choices([k for k, _ in FILLERS], [w for _, w in FILLERS])[0]) if misfits > 1 else self.conversation()
            a, b = self.encoded(short, room)
            if not a:
                misfits += 1
                continue
            n += 1
            ids += a
            weights += b
            doc += [n] * len(a)
        pad = self.length - len(ids)
        return ids + [self.pad] * pad, weights + [0.0] * pad, doc + [n + 1] * pad

    @property
    def pad(self):
        return self.tokenizer.token_to_id("<|endoftext|>")


def corpus(seed, n):
    """Text to learn the vocabulary from."""
    rng = random.Random(seed)
    for _ in range(n):
        c = needle_conversation(rng, rng.randint(20, 200)) if rng.random() < 0.25 else conversation(rng)
        yield "".join(wire.render(*c))


if __name__ == "__main__":
    r = random.Random(3)
    for i in range(300):
        c = conversation(r)
        wire.check(*c)
    for i in range(12):
        p, a = wire.render(*conversation(r))
        print(p + "\033[7m" + a + "\033[0m\n")
