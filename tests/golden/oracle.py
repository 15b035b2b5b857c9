"""Float64 numpy implementation of the Qwen3.6-35B-A3B text model, MTP head and vision tower.

Written from the description of the model, with no framework code, so it can be used to
check the specification (against transformers) and as a slow oracle
for engine tests.  Weight names are those of the published checkpoint; the fused
expert layout and the per-expert layout are both accepted.

    m = Model.load("data/tiny-hf")
    logits, hidden, state = m.forward(ids)           # prefill
    logits, hidden, state = m.forward([tok], state)  # decode
    draft_logits, feedback, mtp_state = m.mtp(hidden, next_ids)

GDN runs either token by token ("recurrent") or in chunks of 64 ("chunked"); both
give the same numbers.
"""
import json
import os
import sys

import numpy as np

from tinylib import load_safetensors

F = np.float64


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(x, 0.0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def l2norm(x, eps=1e-6):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)


# ---------------------------------------------------------------- gated delta rule
def gdn_recurrent(q, k, v, g, beta, S):
    """q,k [T,H,dk], v [T,H,dv], g,beta [T,H], S [H,dk,dv] -> (out [T,H,dv], S)."""
    out = np.empty_like(v)
    for t in range(len(q)):
        S = S * np.exp(g[t])[:, None, None]
        seen = np.einsum("hkv,hk->hv", S, k[t])
        S = S + k[t][:, :, None] * ((v[t] - seen) * beta[t][:, None])[:, None, :]
        out[t] = np.einsum("hkv,hk->hv", S, q[t])
    return out, S


def gdn_chunked(q, k, v, g, beta, S, C=64):
    """Same result, C tokens per step (WY form).  The last chunk may be short."""
    out = np.empty_like(v)
    for a in range(0, len(q), C):
        Q, K, V = (np.moveaxis(x[a:a + C], 1, 0) for x in (q, k, v))  # [H,c,d]
        B, G = beta[a:a + C].T[..., None], np.cumsum(g[a:a + C], 0).T  # [H,c,1], [H,c]
        c = Q.shape[1]
        low = np.tril(np.ones((c, c), bool))
        D = np.where(low, np.exp(np.where(low, G[:, :, None] - G[:, None, :], 0.0)), 0.0)
        A = np.tril((B * K) @ K.transpose(0, 2, 1) * D, -1)  # strictly lower
        T = np.linalg.inv(np.eye(c) + A)
        U = T @ (B * V)
        W = T @ (B * K * np.exp(G)[..., None])
        N = U - W @ S  # corrected values
        o = (Q * np.exp(G)[..., None]) @ S + ((Q @ K.transpose(0, 2, 1)) * D) @ N
        last = G[:, -1:]
        S = S * np.exp(last)[..., None] + (K * np.exp(last - G)[..., None]).transpose(0, 2, 1) @ N
        out[a:a + C] = np.moveaxis(o, 0, 1)
    return out, S


class Model:
    def __init__(self, config, weights, gdn="recurrent"):
        self.config = config
        self.c = c = config.get("text_config", config)
        self.gdn_mode = gdn
        self.w = {}
        for k, v in weights.items():
            self.w[k.replace("model.language_model.", "model.")] = v
        self.eps = c["rms_norm_eps"]
        r = c["rope_parameters"]
        self.rot = int(c["head_dim"] * r["partial_rotary_factor"])
        self.inv_freq = 1.0 / r["rope_theta"] ** (np.arange(0, self.rot, 2) / self.rot)
        # interleaved M-RoPE: which of (t, h, w) drives frequency j
        self.axis = np.zeros(self.rot // 2, int)
        for ax in (1, 2):
            self.axis[ax:3 * r["mrope_section"][ax]:3] = ax
        self.full = [t == "full_attention" for t in c["layer_types"]]

    @classmethod
    def load(cls, path, **kw):
        config = json.load(open(os.path.join(path, "config.json")))
        weights = {}
        for f in sorted(os.listdir(path)):
            if f.endswith(".safetensors"):
                weights.update(load_safetensors(os.path.join(path, f)))
        return cls(config, weights, **kw)

    def g(self, name):
        return self.w[name].astype(F)

    def norm1p(self, x, name):
        return rms(x, self.eps) * (1.0 + self.g(name))

    # ------------------------------------------------------------ full attention
    def rope(self, x, pos3):
        """x [T,H,d]; pos3 [3,T].  Rotates the first `rot` dims, half-split pairing."""
        ang = pos3[self.axis].T * self.inv_freq  # [T, rot/2]
        cos, sin = np.cos(ang)[:, None], np.sin(ang)[:, None]
        h = self.rot // 2
        a, b, rest = x[..., :h], x[..., h:self.rot], x[..., self.rot:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def attention(self, p, x, pos3, cache):
        c, T = self.c, len(x)
        d, H, KV = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        qg = (x @ self.g(p + "q_proj.weight").T).reshape(T, H, 2 * d)
        q, gate = qg[..., :d], qg[..., d:].reshape(T, H * d)
        k = (x @ self.g(p + "k_proj.weight").T).reshape(T, KV, d)
        v = (x @ self.g(p + "v_proj.weight").T).reshape(T, KV, d)
        q = self.rope(self.norm1p(q, p + "q_norm.weight"), pos3)
        k = self.rope(self.norm1p(k, p + "k_norm.weight"), pos3)
        if cache:
            k, v = np.concatenate([cache[0], k]), np.concatenate([cache[1], v])
        rep = H // KV
        kk, vv = np.repeat(k, rep, 1), np.repeat(v, rep, 1)
        s = np.einsum("thd,shd->hts", q, kk) * d**-0.5
        past = len(k) - T
        s = np.where(np.arange(len(k)) <= np.arange(T)[:, None] + past, s, -np.inf)
        o = np.einsum("hts,shd->thd", softmax(s), vv).reshape(T, H * d)
        return (o * sigmoid(gate)) @ self.g(p + "o_proj.weight").T, (k, v)

    # ------------------------------------------------------------ linear attention
    def gdn(self, p, x, cache):
        c, T = self.c, len(x)
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv, taps = c["linear_key_head_dim"], c["linear_value_head_dim"], c["linear_conv_kernel_dim"]
        kd = hk * dk
        mixed = x @ self.g(p + "in_proj_qkv.weight").T
        z = (x @ self.g(p + "in_proj_z.weight").T).reshape(T, hv, dv)
        beta = sigmoid(x @ self.g(p + "in_proj_b.weight").T)
        a = x @ self.g(p + "in_proj_a.weight").T
        g = -np.exp(self.g(p + "A_log")) * softplus(a + self.g(p + "dt_bias"))
        conv_state, S = cache or (np.zeros((taps - 1, mixed.shape[1])), np.zeros((hv, dk, dv)))
        padded = np.concatenate([conv_state, mixed])
        kern = self.g(p + "conv1d.weight").reshape(-1, taps)
        y = silu(sum(padded[j:j + T] * kern[:, j] for j in range(taps)))
        q = l2norm(y[:, :kd].reshape(T, hk, dk)) * dk**-0.5
        k = l2norm(y[:, kd:2 * kd].reshape(T, hk, dk))
        v = y[:, 2 * kd:].reshape(T, hv, dv)
        q, k = np.repeat(q, hv // hk, 1), np.repeat(k, hv // hk, 1)  # v-head j uses k-head j // (hv/hk)
        run = gdn_chunked if self.gdn_mode == "chunked" else gdn_recurrent
        o, S = run(q, k, v, g, beta, S)
        o = rms(o, self.eps) * self.g(p + "norm.weight") * silu(z)
        return o.reshape(T, hv * dv) @ self.g(p + "out_proj.weight").T, (padded[len(padded) - taps + 1:], S)

    # ------------------------------------------------------------ mixture of experts
    def expert(self, p, e):
        if p + "experts.gate_up_proj" in self.w:
            gu = self.w[p + "experts.gate_up_proj"][e].astype(F)
            h = len(gu) // 2
            return gu[:h], gu[h:], self.w[p + "experts.down_proj"][e].astype(F)
        return tuple(self.g(f"{p}experts.{e}.{n}_proj.weight") for n in ("gate", "up", "down"))

    def route(self, p, x):
        prob = softmax(x @ self.g(p + "gate.weight").T)
        idx = np.argsort(-prob, -1, kind="stable")[:, :self.c["num_experts_per_tok"]]
        w = np.take_along_axis(prob, idx, -1)
        return idx, w / w.sum(-1, keepdims=True)

    def moe(self, p, x):
        idx, w = self.route(p, x)
        y = np.zeros_like(x)
        for e in np.unique(idx):
            t, slot = np.nonzero(idx == e)
            gate, up, down = self.expert(p, e)
            y[t] += w[t, slot, None] * ((silu(x[t] @ gate.T) * (x[t] @ up.T)) @ down.T)
        s = p + "shared_expert."
        sh = (silu(x @ self.g(s + "gate_proj.weight").T) * (x @ self.g(s + "up_proj.weight").T))
        sh = sh @ self.g(s + "down_proj.weight").T
        return y + sigmoid(x @ self.g(p + "shared_expert_gate.weight").T) * sh

    # ------------------------------------------------------------ whole model
    def block(self, p, x, full, pos3, cache):
        h = self.norm1p(x, p + "input_layernorm.weight")
        mix, cache = self.attention(p + "self_attn.", h, pos3, cache) if full else self.gdn(p + "linear_attn.", h, cache)
        x = x + mix
        return x + self.moe(p + "mlp.", self.norm1p(x, p + "post_attention_layernorm.weight")), cache

    def embed(self, ids):
        return self.w["model.embed_tokens.weight"][np.asarray(ids)].astype(F)

    def forward(self, ids=None, state=None, embeds=None, pos3=None, trace=None):
        """Returns (logits [T,V], hidden AFTER the final norm [T,D], state)."""
        x = self.embed(ids) if embeds is None else embeds
        state = state or {"pos": 0, "cache": [None] * len(self.full)}
        if pos3 is None:
            pos3 = np.broadcast_to(state["pos"] + np.arange(len(x)), (3, len(x)))
        if trace is not None:
            trace.append(x)
        caches = []
        for i, full in enumerate(self.full):
            x, cache = self.block(f"model.layers.{i}.", x, full, pos3, state["cache"][i])
            caches.append(cache)
            if trace is not None:
                trace.append(x)
        hidden = self.norm1p(x, "model.norm.weight")
        return hidden @ self.g("lm_head.weight").T, hidden, {"pos": int(pos3.max()) + 1, "cache": caches}

    def greedy(self, ids, n):
        logits, _, st = self.forward(ids)
        out = []
        for _ in range(n):
            out.append(int(logits[-1].argmax()))
            logits, _, st = self.forward(out[-1:], st)
        return out

    def mtp(self, hidden, next_ids, state=None):
        """One MTP pass over T positions.

        hidden[i]   final-normed trunk hidden at position i (or the MTP feedback)
        next_ids[i] token at position i+1
        Returns (logits predicting the token at i+2, feedback hidden, state).
        """
        e = self.norm1p(self.embed(next_ids), "mtp.pre_fc_norm_embedding.weight")
        h = self.norm1p(hidden, "mtp.pre_fc_norm_hidden.weight")
        x = np.concatenate([e, h], -1) @ self.g("mtp.fc.weight").T
        state = state or {"pos": 0, "cache": None}
        pos3 = np.broadcast_to(state["pos"] + np.arange(len(x)), (3, len(x)))
        x, cache = self.block("mtp.layers.0.", x, True, pos3, state["cache"])
        x = self.norm1p(x, "mtp.norm.weight")
        return x @ self.g("lm_head.weight").T, x, {"pos": state["pos"] + len(hidden), "cache": cache}

    def mtp_draft(self, ids, n):
        """Greedy draft of n tokens after the trunk's own next token."""
        logits, hidden, _ = self.forward(ids)
        first = int(logits[-1].argmax())
        d, fb, st = self.mtp(hidden, list(ids[1:]) + [first])
        draft = [int(d[-1].argmax())]
        for _ in range(n - 1):
            d, fb, st = self.mtp(fb[-1:], draft[-1:], st)
            draft.append(int(d[-1].argmax()))
        return first, draft

    # ------------------------------------------------------------ vision tower
    def vision(self, pixels, grid):
        """pixels [N, 3*2*p*p] in merge-block order, grid (t,h,w) in patches -> [N/4, D]."""
        v, p = self.config["vision_config"], "model.visual."
        t, gh, gw = grid
        m, d = v["spatial_merge_size"], v["hidden_size"]
        wpe = self.g(p + "patch_embed.proj.weight").reshape(d, -1)
        x = pixels.astype(F) @ wpe.T + self.g(p + "patch_embed.proj.bias")
        r, q = np.meshgrid(np.arange(gh), np.arange(gw), indexing="ij")
        order = lambda z: z.reshape(gh // m, m, gw // m, m).transpose(0, 2, 1, 3).reshape(-1)
        r, q = np.tile(order(r), t), np.tile(order(q), t)
        n = int(round(v["num_position_embeddings"] ** 0.5))
        table = self.g(p + "pos_embed.weight").reshape(n, n, d)
        fy = np.linspace(0, n - 1, gh)[r]  # corners aligned
        fx = np.linspace(0, n - 1, gw)[q]
        y0, x0 = fy.astype(int), fx.astype(int)
        y1, x1 = np.minimum(y0 + 1, n - 1), np.minimum(x0 + 1, n - 1)
        dy, dx = (fy - y0)[:, None], (fx - x0)[:, None]
        x = x + (table[y0, x0] * (1 - dy) * (1 - dx) + table[y0, x1] * (1 - dy) * dx
                 + table[y1, x0] * dy * (1 - dx) + table[y1, x1] * dy * dx)
        heads = v["num_heads"]
        hd = d // heads
        inv = 1.0 / 10000.0 ** (np.arange(0, hd // 2, 2) / (hd // 2))
        ang = np.concatenate([r[:, None] * inv, q[:, None] * inv], -1)  # [N, hd/2]
        cos, sin = np.cos(ang)[:, None], np.sin(ang)[:, None]
        frame = np.repeat(np.arange(t), gh * gw)

        def ln(z, name):
            z = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 1e-6)
            return z * self.g(name + ".weight") + self.g(name + ".bias")

        def fc(z, name):
            return z @ self.g(name + ".weight").T + self.g(name + ".bias")

        def rot(z):
            a, b = z[..., :hd // 2], z[..., hd // 2:]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        def gelu_tanh(z):
            return 0.5 * z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)))

        def gelu_erf(z):
            from math import erf
            return 0.5 * z * (1 + np.vectorize(erf)(z / 2**0.5))

        for i in range(v["depth"]):
            b = f"{p}blocks.{i}."
            qkv = fc(ln(x, b + "norm1"), b + "attn.qkv").reshape(-1, 3, heads, hd)
            s = np.einsum("ihd,jhd->hij", rot(qkv[:, 0]), rot(qkv[:, 1])) * hd**-0.5
            s = np.where(frame[:, None] == frame, s, -np.inf)  # full attention inside one frame
            o = np.einsum("hij,jhd->ihd", softmax(s), qkv[:, 2]).reshape(-1, d)
            x = x + fc(o, b + "attn.proj")
            x = x + fc(gelu_tanh(fc(ln(x, b + "norm2"), b + "mlp.linear_fc1")), b + "mlp.linear_fc2")
        x = ln(x, p + "merger.norm").reshape(-1, m * m * d)
        return fc(gelu_erf(fc(x, p + "merger.linear_fc1")), p + "merger.linear_fc2")

    def multimodal(self, ids, image_embeds, grid):
        """Embeds with the image spliced in, and 3-axis positions, for one image."""
        ids = np.asarray(ids)
        x = self.embed(ids)
        at = np.nonzero(ids == self.config["image_token_id"])[0]
        x[at] = image_embeds
        m = self.config["vision_config"]["spatial_merge_size"]
        h, w = grid[1] // m, grid[2] // m
        pos, cur, i = [], 0, 0
        while i < len(ids):
            if i == at[0]:
                r, q = np.divmod(np.arange(h * w), w)
                pos += [(cur, cur + a, cur + b) for a, b in zip(r, q)]
                i, cur = i + h * w, cur + max(h, w)
            else:
                pos.append((cur,) * 3)
                i, cur = i + 1, cur + 1
        return x, np.array(pos).T


if __name__ == "__main__":
    model = Model.load(sys.argv[1] if len(sys.argv) > 1 else "data/tiny-hf")
    ids = [(7 * i * i + 3 * i + 11) % 480 for i in range(170)]
    a = model.forward(ids)[0]
    model.gdn_mode = "chunked"
    b = model.forward(ids)[0]
    st = None
    parts = []
    for lo, hi in ((0, 50), (50, 51), (51, 140), (140, 170)):
        out, _, st = model.forward(ids[lo:hi], st)
        parts.append(out)
    print("recurrent vs chunked      max |d| =", np.abs(a - b).max())
    print("one shot vs split prefill max |d| =", np.abs(a - np.concatenate(parts)).max())
    print("draft:", model.mtp_draft(ids, 4))
