#!/usr/bin/env python3
"""Trains the demo on one GPU from data made on the fly. Needs torch and tokenizers.

  train.py --seconds 1000 --out DIRECTORY [--init demo.pt|DIRECTORY]

Writes demo.pt (f32 tensors under their published names) every few minutes and at the end, and log.jsonl. `--init` goes on
from earlier weights, with fresh optimiser state and a schedule of its own.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import mix
from evaluate import load
from model import Demo

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "crates/lily/demo/tokenizer.json"
# (row length, rows of a batch, (share of needles, fewest, most words of their text))
SHORT = (1024, 64, (0.25, 10, 500))
LONG = (2560, 24, (0.85, 300, 1500))
MTP_WEIGHT, BALANCE_WEIGHT = 0.2, 0.01


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        length, rows, needles = self.kind
        source = mix.Rows(Tokenizer.from_file(str(TOKENIZER)), self.seed * 1000 + worker.id, length, needles)
        while True:
            batch = [source.row() for _ in range(rows)]
            yield tuple(torch.from_numpy(np.array([row[i] for row in batch], dtype)) for i, dtype in enumerate((np.int32, np.float32, np.int32)))


def loader(kind, seed, workers):
    return iter(torch.utils.data.DataLoader(Stream(kind, seed), batch_size=None, num_workers=workers, prefetch_factor=6, pin_memory=True))


def losses(model, ids, weights, doc):
    h, m, balance = model(ids, doc)
    def loss(hidden, ahead):
        same = (doc[:, ahead:] == doc[:, :-ahead]).float()
        w = weights[:, ahead:] * same
        logits = model.logits(hidden[:, :-ahead]).float()
        each = F.cross_entropy(logits.flatten(0, 1), ids[:, ahead:].flatten().long(), reduction="none").view_as(w)
        answers = (w == 1).float()
        return (each * w).sum() / w.sum(), ((each * answers).sum() / answers.sum()).detach(), \
            ((logits.argmax(-1) == ids[:, ahead:]) * answers).sum().detach() / answers.sum()
    main, answer, right = loss(h, 1)
    mtp, _, mtp_right = loss(m, 2)
    return main + MTP_WEIGHT * mtp + BALANCE_WEIGHT * balance, answer, right, mtp_right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--init", help="start from these weights")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=14)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    model = load(args.init, "cuda").train() if args.init else Demo().cuda()
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.2f} M parameters", flush=True)
    matrices = [p for p in model.parameters() if p.ndim >= 2 and p.shape[-1] > 4]
    rest = [p for p in model.parameters() if not (p.ndim >= 2 and p.shape[-1] > 4)]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
                                  lr=args.lr, betas=(0.9, 0.97), fused=True)
    short, long = loader(SHORT, args.seed, args.workers * 2 // 3), loader(LONG, args.seed + 50, args.workers - args.workers * 2 // 3)
    log = open(args.out / "log.jsonl", "a", encoding="utf-8")
    start, first_step, tokens, step, saved, window = time.time(), None, 0, 0, time.time(), []
    while True:
        # The clock starts after the first steps, so that the schedule fits the time.
        elapsed = time.time() - (first_step or time.time())
        done = elapsed / args.seconds
        if done >= 1:
            break
        # Copying is learned on short rows; long ones come when it is there.
        source = long if (done > 0.15 or args.init) and step % 3 == 0 else short
        batch = next(source)
        ids, weights, doc = (x.cuda(non_blocking=True) for x in batch)
        warm = min(1.0, (step + 1) / (60 if args.init else 300))
        lr = args.lr * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        with torch.autocast("cuda", torch.bfloat16):
            loss, answer, right, mtp_right = losses(model, ids, weights, doc)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += ids.numel()
        window.append(torch.stack([loss.detach(), answer, right, mtp_right]))
        if step == 6:
            torch.cuda.synchronize()
            first_step = time.time()
            print(f"under way after {first_step - start:.0f} s", flush=True)
        if step % 100 == 0:
            values = torch.stack(window).mean(0).tolist()
            window = []
            row = {"step": step, "tokens": tokens, "seconds": round(time.time() - start, 1), "lr": lr, "loss": values[0], "answer_loss": values[1],
                   "answer_accuracy": values[2], "mtp_accuracy": values[3]}
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
            log.write(json.dumps(row) + "\n")
            log.flush()
        if time.time() - saved > 240:
            save(model, args.out)
            saved = time.time()
    save(model, args.out)
    print(f"{step} steps, {tokens / 1e6:.0f} M tokens, {time.time() - start:.0f} s", flush=True)


def save(model, out):
    state = {name: tensor.detach().float().cpu() for name, tensor in model.hf_tensors().items()}
    torch.save(state, out / "demo.tmp")
    (out / "demo.tmp").rename(out / "demo.pt")


if __name__ == "__main__":
    main()
