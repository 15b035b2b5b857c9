#!/usr/bin/env python3
"""Scores a demo model on held-out prompts by kind, greedily, and its MTP head by acceptance.

  evaluate.py demo.pt|DIRECTORY [--unfamiliar] [--out report.json] [--device cuda]

DIRECTORY is an exported one: its 8-bit weights are dequantised, so this scores what ships. The prompts are made from a
seed that training does not use: questions about Lily in phrasings, and needles in paragraphs, that were held out.
With --unfamiliar they are those of `heldout.py`, written by hand unlike any training template.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import sys

import torch
from tokenizers import Tokenizer

import about
import heldout
import needle
import skills
import sums
import toolcalls
import wire
from model import Demo

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "crates/lily/demo/tokenizer.json"
NEW_TOKENS = 160


def prompts(seed=20261201):
    """[(kind, prompt text, checker)]; a checker takes (content, calls)."""
    rng = random.Random(seed)
    out = []
    def add(kind, messages, tools, check, thinking=None):
        thinking = rng.random() < 0.5 if thinking is None else thinking
        out.append((kind, wire.render([*messages, ("assistant", "", "", [])], tools, thinking)[0], check))
    has = lambda *parts: lambda content, calls: not calls and all(p.lower() in content.lower() for p in parts)
    for topic, questions in about.HELD_OUT.items():
        for question in questions:
            add("about Lily", [("user", question)], [], has(*about.TOPICS[topic][1]))
    add("about Lily", [("user", "What are you, and how do I load the real model?")], [], has("demo model", "-m"), True)
    add("about Lily", [("user", "What are you, and how do I load the real model?")], [], has("demo model", "-m"), False)
    for _ in range(12):
        question, answer, _ = skills.small_talk(rng)
        add("greeting", [("user", question)], [], has(answer[:12]))
    for _ in range(30):
        question, answer, _ = sums.example(rng)
        result = answer.split("= ")[1]
        add("arithmetic", [("user", question)], [], lambda content, calls, r=result: re.findall(r"-?\d+", content)[-1:] == [r])
    for _ in range(15):
        question, _, _ = skills.unknown(rng)
        add("does not know", [("user", question)], [], has("do not know"))
    counts = collections.Counter()
    while counts["tools"] < 70 or counts["tool result"] < 15 or counts["no tool needed"] < 10:
        messages, tools = toolcalls.conversation(rng, lambda r: r.choice([about.example, skills.small_talk, skills.unknown])(r))
        *history, (_, content, _, calls) = messages
        kind = "tools" if calls else "tool result" if history[-1][0] == "tool" else "no tool needed"
        if counts[kind] >= {"tools": 70, "tool result": 15, "no tool needed": 10}[kind]:
            continue
        counts[kind] += 1
        if calls:
            expected = [(name, {k: v if isinstance(v, str) else json.dumps(v) for k, v in a.items()}) for name, a in calls]
            check = lambda content, calls, e=expected: calls == e
        elif kind == "tool result":
            values = re.findall(r"(?: is|I found|did not work:) ([^,;]+?)(?=[,;]|\.$)", content)
            check = has(*values)
        else:
            check = lambda content, calls, e=content: not calls and e[:20].lower() in content.lower()
        add(kind, history, [tool.definition for tool in tools], check)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    while counts["needle"] < 50:
        question, answer, _ = needle.example(rng, rng.randint(700, 1350), True)
        n = len(tokenizer.encode(question).ids)
        if not 1700 <= n <= 2300 or answer == needle.DOES_NOT_SAY:
            continue
        counts["needle"] += 1
        add("needle in about 2,000 tokens", [("user", question)], [], has(answer.rstrip(".")))
    return out


def parse(text):
    """(content, calls) of a generated answer."""
    text = text.split("<|im_end|>")[0].split("</think>")[-1]
    calls = []
    for block in re.findall(r"<tool_call>\n(.*?)</tool_call>", text, re.S):
        name = re.match(r"<function=(.*?)>", block)
        calls.append((name[1] if name else "", dict(re.findall(r"<parameter=(.*?)>\n(.*?)\n</parameter>", block, re.S))))
    return re.sub(r"<tool_call>.*", "", text, flags=re.S).strip(), calls


@torch.no_grad()
def generate(model, batch, end, device):
    """Greedy answers to a batch of prompts, right-padded: everything is causal."""
    lengths = [len(ids) for ids in batch]
    ids = torch.full((len(batch), max(lengths) + NEW_TOKENS), end, device=device)
    for row, prompt in enumerate(batch):
        ids[row, :len(prompt)] = torch.tensor(prompt, device=device)
    at = torch.tensor(lengths, device=device)
    rows = torch.arange(len(batch), device=device)
    open_ = torch.ones(len(batch), dtype=torch.bool, device=device)
    while open_.any() and int(at.max()) < ids.shape[1]:
        t = int(at.max())
        hidden, _, _ = model(ids[:, :t], torch.ones_like(ids[:, :t]), with_mtp=False)
        token = model.logits(hidden[rows, at - 1]).argmax(-1)
        ids[rows[open_], at[open_]] = token[open_]
        at = at + open_
        open_ &= token != end
        open_ &= at < torch.tensor(lengths, device=device) + NEW_TOKENS
    return [ids[row, n:int(at[row])].tolist() for row, n in enumerate(lengths)], [ids[row, :int(at[row])] for row in range(len(batch))]


@torch.no_grad()
def mtp_acceptance(model, sequences, starts):
    """Share of answer tokens where the head's guess equals the trunk's own greedy token."""
    right = total = 0
    for ids, start in zip(sequences, starts):
        if len(ids) < start + 3:
            continue
        h, m, _ = model(ids[None], torch.ones_like(ids[None]))
        trunk, guess = model.logits(h)[0].argmax(-1), model.logits(m)[0].argmax(-1)
        # At position p the trunk chooses token p + 1 and the head guesses p + 2.
        same = guess[start - 1:-2] == trunk[start:-1]
        right, total = right + int(same.sum()), total + same.numel()
    return right / max(total, 1), total


def load(path, device):
    path = pathlib.Path(path)
    if path.is_dir():
        sys.path.insert(0, str(ROOT / "tests/golden"))
        import to_mlx
        to_mlx.BITS = 8
        # The converter drops the prefix that the published names have.
        full = lambda name: name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
        tensors = {full(k): torch.from_numpy(v.copy()) for k, v in to_mlx.to_hf_names(str(path))[1].items()}
    else:
        tensors = torch.load(path, map_location="cpu")
    return Demo().to(device).load_hf(tensors).eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--unfamiliar", action="store_true")
    parser.add_argument("--limit", type=int, help="only so many prompts of each kind")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    end = tokenizer.token_to_id("<|im_end|>")
    model = load(args.model, args.device)
    cases = heldout.prompts(tokenizer) if args.unfamiliar else prompts()
    if args.limit:
        kept = collections.Counter()
        cases = [c for c in cases if not kept.update([c[0]]) and kept[c[0]] <= args.limit]
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for _, text, _ in cases]
    order = sorted(range(len(cases)), key=lambda i: len(encoded[i]))
    answers, sequences, starts = {}, [], []
    for first in range(0, len(order), 48):
        part = order[first:first + 48]
        new, whole = generate(model, [encoded[i] for i in part], end, args.device)
        answers.update(zip(part, new))
        sequences += whole
        starts += [len(encoded[i]) for i in part]
    scores, failures = collections.defaultdict(list), []
    for i, (kind, text, check) in enumerate(cases):
        answer = tokenizer.decode(answers[i], skip_special_tokens=False)
        good = bool(check(*parse(answer)))
        scores[kind].append(good)
        if not good:
            failures.append({"kind": kind, "prompt": text[-400:], "answer": answer})
    rate, n = mtp_acceptance(model, sequences, starts)
    report = {"prompts": len(cases), "kinds": {k: {"right": sum(v), "of": len(v), "percent": round(100 * sum(v) / len(v), 1)} for k, v in scores.items()},
              "mtp_acceptance": round(rate, 4), "mtp_positions": n}
    print(json.dumps(report, indent=1))
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({**report, "failures": failures}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
