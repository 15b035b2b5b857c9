"""Quantise a tiny HF checkpoint into the MLX affine layout (numpy only, no mlx needed).

  python to_mlx.py data/tiny-hf data/tiny-mlx4
  python to_mlx.py data/tiny-hf data/tiny-mlx4 --verify     needs mlx and mlx-lm

Conventions reproduced (see docs/formats.md):
  * keys: language_model.model.*, language_model.lm_head.*, experts under mlp.switch_mlp.{gate,up,down}_proj
  * (1 + w) RMSNorm gains are stored already shifted; the GDN output norm is not shifted
  * conv1d.weight is [channels, taps, 1]
  * every 2-D/3-D matmul weight and the embedding: 4 bits, groups of 64 along the input axis
  * router gate and shared-expert gate: 8 bits, recorded per layer in config "quantization"
  * conv1d, norms, A_log, dt_bias stay in bf16 / f32
  * MTP tensors are kept under language_model.mtp.* (mlx-lm drops them; an engine may not)
"""
import argparse
import json
import os
import sys

import numpy as np

from tinylib import from_bf16_bits, load_safetensors, save_safetensors, to_bf16_bits

GROUP, BITS = 64, 4
SHIFTED = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight",
           "model.norm.weight", "mtp.norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")


def quantize(w, bits, group=GROUP):
    """float32 [..., in] -> (uint32 [..., in*bits/32], scales, biases [..., in/group]) as bf16 values."""
    g = w.reshape(*w.shape[:-1], -1, group).astype(np.float32)
    lo, hi = g.min(-1, keepdims=True), g.max(-1, keepdims=True)
    top = np.float32(2**bits - 1)
    negative = np.abs(lo) > np.abs(hi)
    scale = np.maximum((hi - lo) / top, np.float32(1e-7))
    scale = np.where(negative, scale, -scale)  # scale < 0 when the largest magnitude is positive
    edge = np.where(negative, lo, hi)
    q0 = np.rint(edge / scale)
    scale = np.where(q0 != 0, edge / np.where(q0 == 0, 1, q0), scale)  # the edge becomes exact
    bias = np.where(q0 != 0, edge, np.float32(0))
    # codes use the float32 scale; scale and bias are rounded to bf16 only when stored
    codes = np.clip(np.rint((g - bias) / scale), 0, top).astype(np.uint32)
    per = 32 // bits
    words = codes.reshape(*w.shape[:-1], -1, per) << (np.arange(per, dtype=np.uint32) * bits)
    packed = np.bitwise_or.reduce(words, -1)  # element 0 sits in the low bits
    return packed, to_bf16_bits(scale[..., 0]), to_bf16_bits(bias[..., 0])


def dequantize(packed, scales, biases, bits, group=GROUP):
    per = 32 // bits
    codes = (packed[..., None] >> (np.arange(per, dtype=np.uint32) * bits)) & np.uint32(2**bits - 1)
    codes = codes.reshape(*packed.shape[:-1], -1, group).astype(np.float32)
    return (codes * scales[..., None] + biases[..., None]).reshape(*packed.shape[:-1], -1)


def mlx_entries(hf):
    """Yield (mlx name, float32 array, kind) with kind in {quant4, quant8, bf16, f32}."""
    for name, x in hf.items():
        if name.startswith("model.visual."):
            continue
        name = name.replace("model.language_model.", "model.")
        if name.startswith("mtp.") or name.startswith("model.") or name.startswith("lm_head."):
            name = "language_model." + name
        if name.endswith("experts.gate_up_proj"):
            half = x.shape[1] // 2
            p = name.replace("experts.gate_up_proj", "switch_mlp.")
            yield p + "gate_proj.weight", x[:, :half], "quant4"
            yield p + "up_proj.weight", x[:, half:], "quant4"
        elif name.endswith("experts.down_proj"):
            yield name.replace("experts.down_proj", "switch_mlp.down_proj.weight"), x, "quant4"
        elif name.endswith("conv1d.weight"):
            yield name, np.moveaxis(x, 2, 1), "bf16"
        elif name.endswith("A_log"):
            yield name, x, "f32"
        elif name.endswith(SHIFTED):
            yield name, x + np.float32(1), "bf16"
        elif x.ndim == 1:
            yield name, x, "bf16"
        else:
            yield name, x, "quant8" if name.endswith(("mlp.gate.weight", "shared_expert_gate.weight")) else "quant4"


def convert(src, dst):
    hf = load_safetensors(os.path.join(src, "model.safetensors"))
    out, quantization = {}, {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    for name, x, kind in mlx_entries(hf):
        if kind == "f32":
            out[name] = x.astype(np.float32)
        elif kind == "bf16":
            out[name] = ("BF16", to_bf16_bits(x))
        else:
            bits = 8 if kind == "quant8" else BITS
            base = name[: -len(".weight")]
            packed, s, b = quantize(x, bits)
            out[name], out[base + ".scales"], out[base + ".biases"] = packed, ("BF16", s), ("BF16", b)
            if bits != BITS:
                quantization[base] = {"group_size": GROUP, "bits": bits}
    os.makedirs(dst, exist_ok=True)
    config = json.load(open(os.path.join(src, "config.json")))
    config["quantization"] = config["quantization_config"] = quantization
    json.dump(config, open(os.path.join(dst, "config.json"), "w"), indent=2)
    save_safetensors(os.path.join(dst, "model.safetensors"), out, {"format": "mlx"})


def to_hf_names(path):
    """Dequantised MLX checkpoint -> HF-convention float32 weights, for oracle.Model."""
    config = json.load(open(os.path.join(path, "config.json")))
    q = config["quantization"]
    t = load_safetensors(os.path.join(path, "model.safetensors"))
    hf = {}
    for name, x in t.items():
        if name.endswith((".scales", ".biases")):
            continue
        base = name[: -len(".weight")] if name.endswith(".weight") else name
        if base + ".scales" in t:
            bits = q.get(base, q)["bits"]
            x = dequantize(x, t[base + ".scales"], t[base + ".biases"], bits)
        elif name.endswith("conv1d.weight"):
            x = np.moveaxis(x, 1, 2)
        elif name.endswith(SHIFTED):
            x = x - np.float32(1)
        hf[name.replace("language_model.", "", 1)] = x
    for name in [n for n in hf if n.endswith("switch_mlp.gate_proj.weight")]:
        p = name[: -len("switch_mlp.gate_proj.weight")]
        hf[p + "experts.gate_up_proj"] = np.concatenate([hf.pop(name), hf.pop(p + "switch_mlp.up_proj.weight")], 1)
        hf[p + "experts.down_proj"] = hf.pop(p + "switch_mlp.down_proj.weight")
    return config, hf


def verify(src, dst):
    import mlx.core as mx
    from mlx.utils import tree_map
    from pathlib import Path
    from mlx_lm.utils import load_model

    from golden import PROMPTS, NEW_TOKENS
    from oracle import Model

    mx.set_default_device(mx.cpu)
    hf = load_safetensors(os.path.join(src, "model.safetensors"))
    mine = load_safetensors(os.path.join(dst, "model.safetensors"), raw_bf16=True)
    same = total = 0
    for name, x, kind in mlx_entries(hf):
        if kind.startswith("quant"):
            w, s, b = mx.quantize(mx.array(np.ascontiguousarray(x)).astype(mx.bfloat16), GROUP, 8 if kind == "quant8" else BITS)
            base = name[: -len(".weight")]
            bits = lambda a: np.array(a.view(mx.uint16))
            same += (np.array_equal(np.array(w), mine[name]) and np.array_equal(bits(s), mine[base + ".scales"][1])
                     and np.array_equal(bits(b), mine[base + ".biases"][1]))
            total += 1
    print(f"tensors identical to mx.quantize: {same}/{total}")

    model, _ = load_model(Path(dst))
    ref = Model(*to_hf_names(dst))
    f32 = tree_map(lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters())
    for label, params in (("bf16 as shipped", None), ("float32 compute", f32)):
        if params is not None:
            model.update(params)
        for name, ids in PROMPTS.items():
            got = np.array(model(mx.array([ids])).astype(mx.float32))[0]
            want = ref.forward(ids)[0]
            d = np.abs(got - want).max()
            agree = (got.argmax(-1) == want.argmax(-1)).mean()
            print(f"{label} {name}: max|d| {d:.2e} (max|ref| {np.abs(want).max():.2f}), argmax agreement {agree:.3f}")
    cache, ids, out = model.make_cache(), PROMPTS["p170"], []
    x = ids
    for _ in range(NEW_TOKENS):
        x = [int(model(mx.array([x]), cache=cache)[0, -1].argmax())]
        out += x
    print("float32 greedy from p170 equals oracle:", out == ref.greedy(ids, NEW_TOKENS))


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("src")
    ap.add_argument("dst")
    ap.add_argument("--verify", action="store_true")
    a = ap.parse_args()
    (verify if a.verify else convert)(a.src, a.dst)
