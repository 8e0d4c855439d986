"""Muon for matrices, AdamW for the rest, as one optimiser with two peak rates.

Muon: momentum whose matrix is made orthogonal by Newton-Schulz steps (Jordan 2024), with updates scaled to AdamW's size
(Moonlight, arXiv 2502.16982).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NOT_MATRICES = ("embed", "head.weight", "hc_", "gate.weight", "confidence_head", "q_weight", "k_weight")
SLOW = 0.1  # of the rate, for the mixers' maps: they read normed rows of thousands of numbers


def orthogonal(x: Tensor, steps: int = 5) -> Tensor:
    """[S, N, K] with all singular values moved near 1."""
    a, b, c = COEFFICIENTS
    y = x.bfloat16() if x.is_cuda else x
    tall = y.shape[1] > y.shape[2]
    y = y.mT if tall else y
    y = y / (y.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = y @ y.mT
        y = a * y + (b * square + c * square @ square) @ y
    return y.mT if tall else y


class Muon:
    """For parameters [N, K] or stacks [..., N, K]; those of one shape step together."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float, momentum: float = 0.95) -> None:
        self.decay, self.momentum = decay, momentum
        self.groups: dict[tuple[int, int], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self.groups[parameter.shape[-2], parameter.shape[-1]].append(parameter)
        self.state = {
            shape: torch.cat([torch.zeros_like(p).view(-1, *shape) for p in group])
            for shape, group in self.groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step. A parameter without a gradient keeps its momentum's direction at a gradient of zero."""
        for shape, group in self.groups.items():
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
            grad, state = torch.cat([g.view(-1, *shape) for g in grads]), self.state[shape]
            state.lerp_(grad, 1 - self.momentum)
            update = orthogonal(grad.lerp(state, self.momentum)) * (0.2 * max(shape) ** 0.5)
            parts = update.to(grad.dtype).split([p.numel() // (shape[0] * shape[1]) for p in group])
            torch._foreach_mul_(group, 1 - rate * self.decay)
            torch._foreach_add_(group, [part.view_as(p) for part, p in zip(parts, group, strict=True)], alpha=-rate)


class Optimiser:
    """Both optimisers over a model's named parameters."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], decay: float) -> None:
        named = list(named)
        matrices = [p for name, p in named if p.ndim >= 2 and not any(part in name for part in NOT_MATRICES)]
        chosen = {id(p) for p in matrices}
        slow = [p for name, p in named if id(p) not in chosen and ".hc_" in name and name.endswith("fn")]
        chosen |= {id(p) for p in slow}
        rest = [p for _, p in named if id(p) not in chosen]
        self.parameters = [p for _, p in named]
        self.muon = Muon(matrices, decay)
        fused = self.parameters[0].is_cuda
        groups = [{"params": rest, "scale": 1.0}, {"params": slow, "scale": SLOW}]
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)

    def step(self, matrix_rate: float, other_rate: float, clip: float = 1.0) -> None:
        """Clip the gradients to a total norm of `clip`, step, and clear them."""
        nn.utils.clip_grad_norm_(self.parameters, clip)
        self.muon.step(matrix_rate)
        for group in self.adam.param_groups:
            group["lr"] = other_rate * group["scale"]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """For `load_state_dict` of an optimiser over the same parameters."""
        return {"adam": self.adam.state_dict(), "muon": self.muon.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where the other one stopped."""
        self.adam.load_state_dict(state["adam"])
        self.muon.state = state["muon"]


def rate_at(step: int, steps: int, warmup: int, decay_share: float) -> float:
    """Share of the peak rate: a linear warm-up, a plateau, and a linear fall to zero over the last `decay_share`."""
    left = (steps - step) / max(1, decay_share * steps)
    return min(1.0, (step + 1) / max(1, warmup), left)
