"""The mixture of examples: rows of token ids with a loss weight per token."""
import random

import about
import needle
import skills
import sums
import toolcalls
import wire

# kind: share of the conversations that are not needles.
KINDS = [("about", 0.20), ("small talk", 0.06), ("introduction", 0.02), ("arithmetic", 0.16), ("copying", 0.10), ("unknown", 0.08), ("tools", 0.38)]
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
        messages, tools = toolcalls.conversation(rng, no_tool)
        return messages, [tool.definition for tool in tools], thinking
    messages = [("system", rng.choice(SYSTEM))] if rng.random() < 0.15 else []
    if rng.random() < 0.2:  # earlier turns, whose reasoning the template drops
        for _ in range(rng.randint(1, 3)):
            question, answer, _ = rng.choice(list(MAKERS.values()))(rng)
            messages += [("user", question), ("assistant", answer, "", [])]
    question, answer, reasoning = _sum(rng, thinking) if kind == "arithmetic" else MAKERS[kind](rng)
    return messages + [("user", question), ("assistant", answer, reasoning, [])], [], thinking


def needle_conversation(rng, n_words):
    question, answer, reasoning = needle.example(rng, n_words)
    messages = [("system", rng.choice(SYSTEM))] if rng.random() < 0.1 else []
    return messages + [("user", question), ("assistant", answer, reasoning, [])], [], rng.random() < 0.5


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

    def row(self):
        ids, weights, doc = [], [], []
        n = 0
        while len(ids) < self.length:
            prompt, answer = wire.render(*self.conversation())
            a = self.tokenizer.encode(prompt, add_special_tokens=False).ids
            b = self.tokenizer.encode(answer, add_special_tokens=False).ids
            if len(a) + len(b) > self.length:
                continue
            if len(ids) + len(a) + len(b) > self.length:
                # Fill up with another small one, or end the row.
                pad = self.length - len(ids)
                ids += [self.pad] * pad
                weights += [0.0] * pad
                doc += [n + 1] * pad
                break
            n += 1
            doc += [n] * (len(a) + len(b))
            ids += a + b
            weights += [self.PROMPT_WEIGHT] * len(a) + [1.0] * len(b)
        return ids, weights, doc

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
