#!/usr/bin/env python3
"""demo.pt -> the directory that ships inside Lily: MLX affine 8-bit, groups of 64. Needs torch and numpy.

  export.py demo.pt OUT_DIRECTORY
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

from model import CONFIG

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))
import to_mlx  # noqa: E402
from tinylib import save_safetensors, to_bf16_bits  # noqa: E402

# 8 bits for every matrix: the router and its like have them in every recipe, and the demo is small.
to_mlx.BITS = 8
WIDE = ("A_log", "linear_attn.norm.weight")


def main():
    source, out = sys.argv[1], pathlib.Path(sys.argv[2])
    state = torch.load(source, map_location="cpu")
    tensors = {}
    for name, tensor in state.items():
        array = np.ascontiguousarray(tensor.float().numpy())
        tensors[name] = array if name.endswith(WIDE) else ("BF16", to_bf16_bits(array))
    eos = json.loads((out / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in eos["added_tokens"]}
    config = json.loads(json.dumps(CONFIG))
    for where in (config, config["text_config"]):
        where["eos_token_id"], where["pad_token_id"], where["bos_token_id"] = ids["<|im_end|>"], ids["<|endoftext|>"], None
    for key, token in (("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>"),
                       ("vision_start_token_id", "<|vision_start|>"), ("vision_end_token_id", "<|vision_end|>")):
        config[key] = ids[token]
    with tempfile.TemporaryDirectory() as hf:
        hf = pathlib.Path(hf)
        save_safetensors(hf / "model.safetensors", tensors, {"format": "pt"})
        (hf / "config.json").write_text(json.dumps(config))
        to_mlx.convert(str(hf), str(out))
    generation = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "pad_token_id": ids["<|endoftext|>"], "do_sample": True,
                  "temperature": 0.3, "top_k": 20, "top_p": 0.9}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    print(f"{(out / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
