#!/usr/bin/env python3
"""A random checkpoint that nobody has seen, through Lily and through the float64 oracle.

  fresh.py LILY DIRECTORY small|heads hf|mlx4 SEED

Writes the checkpoint to DIRECTORY, runs `lily eval logits`, prints {"max_difference": ...}. A seed
whose routing has a near tie (two experts closer than MIN_GAP at the edge of the top k) says nothing
about an engine, since f32 rounding may choose the other expert; the next seed is taken instead.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

import make_tiny
import oracle
import to_mlx
from tinylib import load_safetensors, save_safetensors

# f32 engines differ from float64 by up to 1e-5 in router logits on these shapes; ten times that.
MIN_GAP = 1e-4
N_TOKENS = 45


class Gapped(oracle.Model):
    """The oracle, noting how close a router decision came to a tie."""

    gap = np.inf

    def route(self, p, x):
        logits = np.sort(x @ self.g(p + "gate.weight").T, -1)
        k = self.c["num_experts_per_tok"]
        self.gap = min(self.gap, float((logits[:, -k] - logits[:, -k - 1]).min()))
        return super().route(p, x)


def write_checkpoint(directory, variant, kind, seed):
    """Returns the directory that Lily opens, and config and HF-named float weights for the oracle."""
    make_tiny.SEEDS[variant] = seed
    hf = directory / f"hf-{seed}"
    hf.mkdir()
    config = make_tiny.config_for(variant)
    (hf / "config.json").write_text(json.dumps(config))
    save_safetensors(hf / "model.safetensors", make_tiny.build(variant), {"format": "pt"})
    if kind == "hf":
        return hf, config, load_safetensors(hf / "model.safetensors")
    mlx = directory / f"mlx-{seed}"
    mlx.mkdir()
    to_mlx.convert(str(hf), str(mlx))
    return mlx, *to_mlx.to_hf_names(str(mlx))


def main():
    binary, directory, variant, kind, seed = sys.argv[1:]
    directory, seed = pathlib.Path(directory), int(seed)
    while True:
        checkpoint, config, weights = write_checkpoint(directory, variant, kind, seed)
        model = Gapped(config, weights)
        ids = np.random.default_rng(seed).integers(0, config["text_config"]["vocab_size"], N_TOKENS)
        expected = model.forward(ids)[0]
        if model.gap >= MIN_GAP:
            break
        seed += 1
    worst = 0.0
    for chunk in (N_TOKENS, 7, 1):
        out = directory / f"logits-{chunk}.safetensors"
        subprocess.run([binary, "eval", "logits", "-m", str(checkpoint), "--ids", ",".join(map(str, ids)),
                        "--chunk", str(chunk), "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        logits = load_safetensors(out)["logits"]
        assert logits.shape == expected.shape, (logits.shape, expected.shape)
        worst = max(worst, float(np.abs(logits - expected).max()))
    print(json.dumps({"max_difference": worst, "seed": seed, "gap": model.gap}))


if __name__ == "__main__":
    main()
