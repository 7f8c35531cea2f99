"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/): momentum whose matrices are orthogonalised.

The update of a matrix is scaled by 0.2 sqrt(max(rows, columns)), which gives it the size of an AdamW update, so that
both optimizers share one learning rate (Liu et al., 2025, https://arxiv.org/abs/2502.16982).
"""

import collections

import torch


def _orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest semi-orthogonal matrices of a [n, rows, columns] stack, roughly: five Newton-Schulz steps."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.size(1) > x.size(2)
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """For the weight matrices of linear layers. Matrices of one shape are updated together."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape = collections.defaultdict(list)
            for param in group["params"]:
                by_shape[param.shape].append(param)
            for shape, params in by_shape.items():
                self._step_shape(group, shape, params)

    def _step_shape(self, group, shape, params) -> None:
        grads = torch.stack([param.grad for param in params])
        state = self.state[params[0]]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(grads)
        state["momentum"].lerp_(grads, 1 - group["momentum"])
        update = _orthogonalise(grads.lerp(state["momentum"], group["momentum"])).float()
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, list(update), alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)
