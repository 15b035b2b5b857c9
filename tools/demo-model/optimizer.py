"""Muon for the matrices and AdamW for the rest, in operations that a CUDA graph can record.

Muon (Jordan et al., 2024) replaces the momentum of a matrix by the nearest orthogonal one, found by five steps of a
Newton-Schulz iteration; an update is scaled by 0.2 sqrt(larger side), which makes its size that of AdamW's, so both take
one learning rate (Liu et al., 2025, arXiv 2502.16982). Experts are matrices of their own.
"""
import torch

MOMENTUM, DECAY = 0.95, 0.05


def orthogonal(g):
    """[n, rows, columns] -> nearly the nearest orthogonal matrices; singular values end in about 0.7 to 1.2."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = g.bfloat16()
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Optimizer:
    def __init__(self, model, lr, device):
        cuda = device == "cuda"
        self.rate = torch.tensor(lr, device=device)
        experts = {p: m.e for m in model.modules() if hasattr(m, "down_proj") for p in (m.gate_proj, m.up_proj, m.down_proj)}
        ends = (model.embed_tokens, model.lm_head)
        self.shapes, adam_matrices, rest = {}, [], []
        for p in model.parameters():
            if p in experts or (p.ndim == 2 and min(p.shape) >= 64 and not any(p is e for e in ends)):
                view = (experts.get(p, 1), -1, p.shape[-1])
                shape = tuple(p.view(view).shape[1:])
                self.shapes.setdefault(shape, []).append((p, view))
            elif p.ndim == 2 and p.shape[-1] > 4:
                adam_matrices.append(p)
            else:
                rest.append(p)
        self.momenta = {shape: torch.zeros(sum(view[0] for _, view in group), *shape, device=device) for shape, group in self.shapes.items()}
        rate = lambda: torch.tensor(lr, device=device) if cuda else lr
        self.adam = torch.optim.AdamW([{"params": adam_matrices, "weight_decay": DECAY, "lr": rate()}, {"params": rest, "weight_decay": 0.0, "lr": rate()}],
                                      lr=rate(), betas=(0.9, 0.97), fused=cuda, capturable=cuda)

    def set_lr(self, lr):
        self.rate.fill_(lr)
        for group in self.adam.param_groups:
            if torch.is_tensor(group["lr"]):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def zero_grad(self):
        self.adam.zero_grad(set_to_none=True)
        for group in self.shapes.values():
            for p, _ in group:
                p.grad = None

    @torch.no_grad()
    def step(self):
        self.adam.step()
        for shape, group in self.shapes.items():
            gradient = torch.cat([p.grad.reshape(view) for p, view in group]).float()
            momentum = self.momenta[shape]
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = orthogonal(gradient.lerp(momentum, MOMENTUM)).float() * (0.2 * max(shape) ** 0.5 * self.rate)
            at = 0
            for p, view in group:
                p.mul_(1 - DECAY * self.rate).sub_(update[at:at + view[0]].reshape(p.shape))
                at += view[0]
