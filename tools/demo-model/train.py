#!/usr/bin/env python3
"""Trains the demo on one GPU from data made on the fly. Needs torch and tokenizers.

  train.py --seconds 1000 --out DIRECTORY [--init demo.pt|DIRECTORY] [--eager] [--compile]

Writes demo.pt (f32 tensors under their published names) every `--save-every` seconds and at the end, and log.jsonl.
`--init` goes on from earlier weights, with fresh optimiser state and a schedule of its own. A step is thousands of small
kernels, so it is recorded once as a CUDA graph for each shape of batch; where that fails, or with --eager, it is run as
it is. With --compile the parts of a layer that are many passes over memory are compiled first.
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
from model import DeltaNet, Demo, Experts
from optimizer import Optimizer

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "crates/lily/demo/tokenizer.json"
# (row length, rows of a batch, (share of needles, fewest, most words of their text))
SHORT = (1024, 64, (0.16, 10, 400))
LONG = (2560, 24, (0.70, 200, 1150))
MTP_WEIGHT, BALANCE_WEIGHT = 0.2, 0.01
NAMES = ("loss", "answer_loss", "answer_accuracy", "mtp_accuracy")


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        length, rows, needles = self.kind
        number = worker.id if worker else 0
        source = mix.Rows(Tokenizer.from_file(str(TOKENIZER)), self.seed * 1000 + number, length, needles)
        while True:
            batch = [source.row() for _ in range(rows)]
            yield tuple(torch.from_numpy(np.array([row[i] for row in batch], dtype)) for i, dtype in enumerate((np.int64, np.float32, np.int32)))


def loader(kind, seed, workers, cuda):
    options = {"prefetch_factor": 6, "pin_memory": cuda} if workers else {}
    return iter(torch.utils.data.DataLoader(Stream(kind, seed), batch_size=None, num_workers=workers, **options))


def losses(model, ids, weights, doc):
    h, m, balance = model(ids, doc)
    def loss(hidden, ahead):
        same = (doc[:, ahead:] == doc[:, :-ahead]).float()
        w = weights[:, ahead:] * same
        logits = model.logits(hidden[:, :-ahead]).float()
        each = F.cross_entropy(logits.flatten(0, 1), ids[:, ahead:].flatten(), reduction="none").view_as(w)
        answers = (w == 1).float()
        return (each * w).sum() / w.sum(), ((each * answers).sum() / answers.sum()).detach(), \
            ((logits.argmax(-1) == ids[:, ahead:]) * answers).sum().detach() / answers.sum()
    main, answer, right = loss(h, 1)
    mtp, _, mtp_right = loss(m, 2)
    return main + MTP_WEIGHT * mtp + BALANCE_WEIGHT * balance, answer, right, mtp_right


class Trainer:
    """One optimiser step on a batch; `sums` holds what was measured since it was last read."""

    def __init__(self, model, lr, device):
        self.model, self.device, self.optimizer = model, device, Optimizer(model, lr, device)
        self.sums = torch.zeros(len(NAMES), device=device)
        self.graphs = {}

    def eager(self, ids, weights, doc):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            loss, *measured = losses(self.model, ids, weights, doc)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.sums += torch.stack([loss.detach(), *measured])

    def capture(self, batches):
        """Records the step for the shape of each batch. Two steps are taken on each."""
        side = torch.cuda.Stream()
        for batch in batches:
            buffers = [x.cuda() for x in batch]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.optimizer.zero_grad()
                    self.eager(*buffers)
            torch.cuda.current_stream().wait_stream(side)
            self.optimizer.zero_grad()
            graph = torch.cuda.CUDAGraph()
            # The workers' pinned memory may be handled by other threads meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.eager(*buffers)
            self.graphs[buffers[0].shape] = graph, buffers

    def step(self, batch):
        recorded = self.graphs.get(batch[0].shape)
        if recorded:
            graph, buffers = recorded
            for buffer, new in zip(buffers, batch):
                buffer.copy_(new, non_blocking=True)
            graph.replay()
        else:
            self.optimizer.zero_grad()
            self.eager(*(x.to(self.device, non_blocking=True) for x in batch))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--init", help="start from these weights")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--save-every", type=float, default=120)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, help="rows of a batch, for trials")
    parser.add_argument("--warm", type=int, default=100, help="steps in which the rate rises")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    start = time.time()
    cuda = args.device == "cuda"
    many = args.workers * 3 // 5
    kinds = [(length, args.rows or rows, needles) for length, rows, needles in (SHORT, LONG)]
    short, long = loader(kinds[0], args.seed, many, cuda), loader(kinds[1], args.seed + 50, args.workers - many, cuda)
    model = load(args.init, args.device).train() if args.init else Demo().to(args.device)
    if args.compile:
        torch._dynamo.config.suppress_errors = True  # what does not compile runs as it is
        for part, method in ((Experts, "forward"), (DeltaNet, "before"), (DeltaNet, "after")):
            setattr(part, method, torch.compile(getattr(part, method), dynamic=False))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    trainer = Trainer(model, args.lr * 0.01, args.device)
    if cuda and not args.eager:
        try:
            trainer.capture([next(short), next(long)])
        except RuntimeError as error:
            trainer.graphs.clear()
            trainer.optimizer.zero_grad()
            print(f"no CUDA graphs: {error}", flush=True)
    log = open(args.out / "log.jsonl", "a", encoding="utf-8")
    first_step, tokens, step, saved, since = None, 0, 0, time.time(), 0
    while True:
        # The clock starts after the first steps, so that the schedule fits the time.
        done = (time.time() - first_step) / args.seconds if first_step else 0.0
        if done >= 1:
            break
        # Copying is learned on short rows; long ones come when it is there.
        batch = next(long if (done > 0.15 or args.init) and step % 3 == 0 else short)
        warm = min(1.0, (step + 1) / args.warm)
        lr = args.lr * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        trainer.optimizer.set_lr(lr)
        trainer.step(batch)
        step += 1
        tokens += batch[0].numel()
        if step % 20 == 0 and cuda:
            torch.cuda.synchronize()  # the clock of the schedule is that of the GPU
        if step == 6:
            first_step = time.time()
            print(f"under way after {first_step - start:.0f} s", flush=True)
        if step % (100 if cuda else 10) == 0:
            row = {"step": step, "tokens": tokens, "seconds": round(time.time() - start, 1), "lr": lr,
                   **dict(zip(NAMES, (trainer.sums / (step - since)).tolist()))}
            row["tokens_per_s"] = round(tokens / (time.time() - start))
            trainer.sums.zero_()
            since = step
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
            log.write(json.dumps(row) + "\n")
            log.flush()
            if not math.isfinite(row["loss"]):
                raise SystemExit("the loss is not finite")
        if time.time() - saved > args.save_every:
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
