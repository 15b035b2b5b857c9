"""The demo's architecture in plain PyTorch, for training: Qwen3.6's, small, without caches.

Names and maths follow the checkpoint; `export.py` writes it in that form, and the exported weights are checked against
an independent float64 implementation. Two shortcuts that change no number: the routed experts are computed as one wide
SwiGLU whose columns are scaled by the routing weights (most are zero), and the delta rule runs in chunks.
"""
import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "attention_bias": False, "attention_dropout": 0.0,
        "attn_output_gate": True, "hidden_act": "silu", "hidden_size": 256, "num_hidden_layers": 8, "vocab_size": 4096,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2, "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 256,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "tie_word_embeddings": False, "use_cache": True, "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                            "mrope_interleaved": True, "mrope_section": [3, 3, 2]},
    },
}
CHUNK = 64
# Log decay at the first token of a conversation: what came before is forgotten (e^-30).
FORGET = -30.0


def linear(out_dim, in_dim, gain=1.0):
    weight = nn.Parameter(torch.empty(out_dim, in_dim))
    nn.init.normal_(weight, std=gain * in_dim**-0.5)
    return weight


class Norm(nn.Module):
    """x / rms(x) * (1 + w)"""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], 1 + self.weight.float(), 1e-6).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.h, self.kv, self.d = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.rot = int(self.d * 0.25)
        self.q_proj = linear(self.h * self.d * 2, d)
        self.k_proj, self.v_proj = linear(self.kv * self.d, d), linear(self.kv * self.d, d)
        self.o_proj = linear(d, self.h * self.d, 0.3)
        self.q_norm, self.k_norm = Norm(self.d), Norm(self.d)

    def rope(self, x):
        t, half = x.shape[2], self.rot // 2
        inv = 10_000_000.0 ** (-torch.arange(0, self.rot, 2, device=x.device, dtype=torch.float32) / self.rot)
        angle = torch.arange(t, device=x.device, dtype=torch.float32)[:, None] * inv
        cos, sin = angle.cos(), angle.sin()
        a, b, rest = x[..., :half].float(), x[..., half:self.rot].float(), x[..., self.rot:]
        return torch.cat([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype), rest], -1)

    def forward(self, x, mask, same):
        b, t, _ = x.shape
        q, gate = (x @ self.q_proj.T).view(b, t, self.h, 2 * self.d).split(self.d, -1)
        k = (x @ self.k_proj.T).view(b, t, self.kv, self.d)
        v = (x @ self.v_proj.T).view(b, t, self.kv, self.d)
        q, k = self.rope(self.q_norm(q).transpose(1, 2)), self.rope(self.k_norm(k).transpose(1, 2))
        n = self.h // self.kv
        k, v = k.repeat_interleave(n, 1), v.transpose(1, 2).repeat_interleave(n, 1)
        o = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=mask)
        o = o.transpose(1, 2).reshape(b, t, self.h * self.d)
        return (o * gate.reshape(b, t, -1).sigmoid()) @ self.o_proj.T


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["hidden_size"]
        self.hk, self.hv, self.d = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"]
        self.keys, self.values = self.hk * self.d, self.hv * self.d
        self.channels = 2 * self.keys + self.values
        self.in_proj_qkv, self.in_proj_z = linear(self.channels, d), linear(self.values, d)
        self.in_proj_b, self.in_proj_a = linear(self.hv, d), linear(self.hv, d)
        self.out_proj = linear(d, self.values, 0.3)
        self.conv1d = nn.Parameter(torch.randn(self.channels, 4) * 0.2 + torch.tensor([0.0, 0.0, 0.0, 0.7]))
        self.A_log = nn.Parameter(torch.empty(self.hv).uniform_(0.0, 1.5))
        self.dt_bias = nn.Parameter(torch.empty(self.hv).uniform_(-5.0, -1.0))
        self.norm = nn.Parameter(torch.ones(self.d))

    def forward(self, x, mask, same):
        """`same[j]` is 1 where the token j before belongs to the same conversation."""
        q, k, v, g, beta = self.before(x, same)
        with torch.autocast(x.device.type, enabled=False):
            o = delta_rule(q, k, v, g, beta)
        return self.after(x, o)

    def before(self, x, same):
        b, t, _ = x.shape
        u = x @ self.in_proj_qkv.T
        y = u * self.conv1d[:, 3]
        for back in (1, 2, 3):
            y = y + F.pad(u, (0, 0, back, 0))[:, :t] * self.conv1d[:, 3 - back] * same[back][..., None]
        y = F.silu(y).float()
        q, k, v = y.split([self.keys, self.keys, self.values], -1)
        heads = lambda z, n: z.reshape(b, t, n, self.d).transpose(1, 2)
        q, k, v = heads(q, self.hk), heads(k, self.hk), heads(v, self.hv)
        unit = lambda z: z * torch.rsqrt(z.pow(2).sum(-1, keepdim=True) + 1e-6)
        n = self.hv // self.hk
        q = (unit(q) * self.d**-0.5).repeat_interleave(n, 1)
        k = unit(k).repeat_interleave(n, 1)
        beta = (x @ self.in_proj_b.T).float().sigmoid().transpose(1, 2)
        g = -self.A_log.exp() * F.softplus((x @ self.in_proj_a.T).float() + self.dt_bias)
        g = torch.where(same[1][..., None] > 0, g, FORGET).transpose(1, 2)
        return q, k, v, g, beta

    def after(self, x, o):
        b, t, _ = x.shape
        o = o.transpose(1, 2)
        z = (x @ self.in_proj_z.T).view(b, t, self.hv, self.d).float()
        o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm * F.silu(z)
        return o.reshape(b, t, self.values).to(x.dtype) @ self.out_proj.T


def delta_rule(q, k, v, g, beta):
    """All [B, H, T, d] or [B, H, T]; T is padded to whole chunks."""
    b, h, t, d = q.shape
    pad = -t % CHUNK
    if pad:
        q, k, v = (F.pad(z, (0, 0, 0, pad)) for z in (q, k, v))
        g, beta = F.pad(g, (0, pad)), F.pad(beta, (0, pad))
    n = (t + pad) // CHUNK
    cut = lambda z: z.reshape(b, h, n, CHUNK, *z.shape[3:])
    q, k, v, g, beta = cut(q), cut(k), cut(v), cut(g), cut(beta)[..., None]
    G = g.cumsum(-1)
    low = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    D = torch.where(low, (G[..., :, None] - G[..., None, :]).masked_fill(~low, 0).exp(), 0)
    A = ((beta * k) @ k.transpose(-1, -2) * D).tril(-1)
    eye = torch.eye(CHUNK, device=q.device)
    rhs = torch.cat([beta * v, beta * G.exp()[..., None] * k], -1)
    U, W = torch.linalg.solve_triangular(A + eye, rhs, upper=False, unitriangular=True).split(d, -1)
    inside = q @ k.transpose(-1, -2) * D
    q = q * G.exp()[..., None]
    last = G[..., -1:]
    k = (k * (last - G).exp()[..., None]).transpose(-1, -2)
    # Only the state runs from chunk to chunk: everything else is done for all of them at once. `unbind` and `stack`
    # because indexing in the loop would make its backward pass fill a whole tensor for every chunk.
    S = torch.zeros(b * h, d, d, device=q.device)
    flat = lambda z: z.flatten(0, 1).unbind(1)
    states, news = [], []
    for u_i, w_i, k_i, decay in zip(flat(U), flat(W), flat(k), flat(last.exp()[..., None])):
        states.append(S)
        N = torch.baddbmm(u_i, w_i, S, alpha=-1)
        news.append(N)
        S = torch.baddbmm(decay * S, k_i, N)
    whole = lambda z: torch.stack(z, 1).unflatten(0, (b, h))
    out = q @ whole(states) + inside @ whole(news)
    return out.reshape(b, h, n * CHUNK, d)[:, :, :t]


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.e, self.k, self.w = c["hidden_size"], c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"]
        s = c["shared_expert_intermediate_size"]
        self.gate = linear(self.e, d)
        self.gate_proj, self.up_proj = linear(self.e * self.w, d), linear(self.e * self.w, d)
        self.down_proj = nn.Parameter(torch.randn(self.e, d, self.w) * 0.3 * self.w**-0.5)
        self.shared_gate_proj, self.shared_up_proj, self.shared_down_proj = linear(s, d), linear(s, d), linear(d, s, 0.3)
        self.shared_expert_gate = linear(1, d)

    def forward(self, x):
        """(output, load-balancing loss)"""
        with torch.autocast(x.device.type, enabled=False):
            prob = (x.float() @ self.gate.T).softmax(-1)
        top, idx = prob.topk(self.k, -1)
        weight = torch.zeros_like(prob).scatter(-1, idx, top / top.sum(-1, keepdim=True))
        used = (weight > 0).float().mean((0, 1)) / self.k
        balance = self.e * (used * prob.mean((0, 1))).sum()
        h = F.silu(x @ self.gate_proj.T) * (x @ self.up_proj.T)
        h = (h.unflatten(-1, (self.e, self.w)) * weight.to(h.dtype)[..., None]).flatten(-2)
        y = h @ self.down_proj.permute(0, 2, 1).reshape(self.e * self.w, -1)
        s = (F.silu(x @ self.shared_gate_proj.T) * (x @ self.shared_up_proj.T)) @ self.shared_down_proj.T
        return y + (x @ self.shared_expert_gate.T).sigmoid() * s, balance


class Layer(nn.Module):
    def __init__(self, c, full):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c["hidden_size"]), Norm(c["hidden_size"])
        self.mixer, self.mlp = (Attention if full else DeltaNet)(c), Experts(c)

    def forward(self, x, mask, same):
        x = x + self.mixer(self.input_layernorm(x), mask, same)
        y, balance = self.mlp(self.post_attention_layernorm(x))
        return x + y, balance


class Demo(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        c = (config or CONFIG)["text_config"]
        d, v = c["hidden_size"], c["vocab_size"]
        self.embed_tokens = nn.Parameter(torch.randn(v, d) * 0.7)
        self.layers = nn.ModuleList(Layer(c, kind == "full_attention") for kind in c["layer_types"])
        self.norm, self.lm_head = Norm(d), linear(v, d)
        self.mtp_fc, self.mtp_layer = linear(d, 2 * d), Layer(c, True)
        self.mtp_e, self.mtp_h, self.mtp_norm = Norm(d), Norm(d), Norm(d)

    def forward(self, ids, doc, with_mtp=True):
        """ids, doc [B, T] -> (final-normed hidden, MTP hidden for t + 2, balance loss). Use `logits` on either."""
        same = [None, *(torch.cat([torch.zeros_like(doc[:, :b]), (doc[:, b:] == doc[:, :-b]).long()], 1).float() for b in (1, 2, 3))]
        t = ids.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril()
        mask = (causal & (doc[:, :, None] == doc[:, None, :]))[:, None]
        x = F.embedding(ids, self.embed_tokens)
        balance = 0.0
        for layer in self.layers:
            x, extra = layer(x, mask, same)
            balance = balance + extra
        h = self.norm(x)
        if not with_mtp:
            return h, None, balance
        following = torch.cat([ids[:, 1:], ids[:, :1]], 1)
        pair = torch.cat([self.mtp_e(F.embedding(following, self.embed_tokens)), self.mtp_h(h)], -1)
        m, extra = self.mtp_layer(pair @ self.mtp_fc.T, mask, same)
        return h, self.mtp_norm(m), balance + extra

    def logits(self, h):
        return h @ self.lm_head.T

    def hf_tensors(self):
        """name -> tensor, as the published checkpoint would name and shape them."""
        out = {"model.language_model.embed_tokens.weight": self.embed_tokens, "model.language_model.norm.weight": self.norm.weight,
               "lm_head.weight": self.lm_head, "mtp.fc.weight": self.mtp_fc, "mtp.norm.weight": self.mtp_norm.weight,
               "mtp.pre_fc_norm_embedding.weight": self.mtp_e.weight, "mtp.pre_fc_norm_hidden.weight": self.mtp_h.weight}
        named = [(f"model.language_model.layers.{i}.", layer) for i, layer in enumerate(self.layers)] + [("mtp.layers.0.", self.mtp_layer)]
        for p, layer in named:
            for name in ("input_layernorm", "post_attention_layernorm"):
                out[f"{p}{name}.weight"] = getattr(layer, name).weight
            mixer, mlp = layer.mixer, layer.mlp
            if isinstance(mixer, Attention):
                for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                    out[f"{p}self_attn.{name}.weight"] = getattr(mixer, name)
                out[f"{p}self_attn.q_norm.weight"], out[f"{p}self_attn.k_norm.weight"] = mixer.q_norm.weight, mixer.k_norm.weight
            else:
                for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"):
                    out[f"{p}linear_attn.{name}.weight"] = getattr(mixer, name)
                out[f"{p}linear_attn.conv1d.weight"] = mixer.conv1d[:, None, :]
                out[f"{p}linear_attn.A_log"], out[f"{p}linear_attn.dt_bias"] = mixer.A_log, mixer.dt_bias
                out[f"{p}linear_attn.norm.weight"] = mixer.norm
            e, w = mlp.e, mlp.w
            gate, up = mlp.gate_proj.view(e, w, -1), mlp.up_proj.view(e, w, -1)
            out[f"{p}mlp.gate.weight"], out[f"{p}mlp.shared_expert_gate.weight"] = mlp.gate, mlp.shared_expert_gate
            out[f"{p}mlp.experts.gate_up_proj"] = torch.cat([gate, up], 1)
            out[f"{p}mlp.experts.down_proj"] = mlp.down_proj
            for name in ("gate_proj", "up_proj", "down_proj"):
                out[f"{p}mlp.shared_expert.{name}.weight"] = getattr(mlp, f"shared_{name}")
        return out

    @torch.no_grad()
    def load_hf(self, tensors):
        """The inverse of `hf_tensors`."""
        for name, shown in self.hf_tensors().items():
            new = torch.as_tensor(tensors[name]).to(shown)
            if name.endswith("experts.gate_up_proj"):
                continue
            shown.copy_(new.view_as(shown))  # a view of the parameter, or the parameter itself
        named = [(f"model.language_model.layers.{i}.", layer) for i, layer in enumerate(self.layers)] + [("mtp.layers.0.", self.mtp_layer)]
        for p, layer in named:
            both = torch.as_tensor(tensors[f"{p}mlp.experts.gate_up_proj"]).to(self.lm_head)
            w = layer.mlp.w
            layer.mlp.gate_proj.copy_(both[:, :w].reshape_as(layer.mlp.gate_proj))
            layer.mlp.up_proj.copy_(both[:, w:].reshape_as(layer.mlp.up_proj))
        return self
