"""Statistics of tasks on a device: the sums of EM, and what each task says under a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...mixed_models import Mixture, Moments, Summed, Totals
from ...tasks import Units
from .compiling import Kernels, kernels
from .tensors import TensorTasks

Array = NDArray[np.float64]

#: Directions of W that are absent are given this part of its largest eigenvalue: the kernel works with W⁻¹.  Results
#: differ from those without them by about as much, and rounding by as much again.
ABSENT = 1e-9
#: Directions below this part of the largest are absent, as in `mixed_models`.
ROOT_TOLERANCE = 1e-6


class Component(NamedTuple):
    """What the kernel needs of one component: σ²W⁻¹ (packed) and b on the device; the rest here."""

    ridge: Any
    mean: Any
    constant: float
    precision: Array
    kept: Array  # projection onto the range of W


@dataclass(frozen=True)
class CudaStatistics:
    """Sufficient statistics of T tasks, as `TaskStatistics`, in the memory of a device.

    Attributes
    ----------
    products : tensor (E, T)
        Products of the D columns and the targets, the lower triangle row by row, E = (D + 1)(D + 2) / 2.
    sizes : tensor (T,)
        Rows.
    n_features : int
        D.
    side : tensor (T, q), optional
        Features of the descriptions.
    """

    products: Any
    sizes: Any
    n_features: int
    side: Any = None

    @classmethod
    def of(cls, tasks: TensorTasks, units: Units, side: Array | None = None) -> CudaStatistics:
        """Statistics of the tasks' rows in these units."""
        import torch

        D, T = len(units.columns), len(tasks)
        device = tasks.X.device
        compiled = _kernels(D, tasks.X, units.fit_intercept)
        shift, scale = (
            np.append(units.shift, units.target_shift),
            1.0 / np.append(units.columns, units.target),
        )
        products = torch.empty((compiled.layout.n_products, T), dtype=tasks.X.dtype, device=device)
        where = [torch.from_numpy(part).to(device) for part in (shift, scale)]
        compiled.launch("products_of_rows", T, tasks.X, tasks.y, tasks.offsets, T, *where, products)
        known = None if side is None else torch.from_numpy(side).to(device)
        return cls(products, torch.diff(tasks.offsets).double(), D, known)

    def __len__(self) -> int:
        return len(self.sizes)

    def totals(self) -> Totals:
        """Sums that need no model."""
        packed = self.products.sum(dim=1, dtype=self.sizes.dtype).cpu().numpy()
        d = self.n_features
        whole = _unpacked(packed, d + 1)
        return Totals(len(self), float(self.sizes.sum()), float(whole[d, d]), whole[d, :d], whole[:d, :d])

    def moments(self, model: Any, responsibilities: Any = None) -> Summed:
        """The sums of a step of EM.  All tasks are asked about all components: that costs less than to choose."""
        import torch

        K = model.n_components
        compiled, layout = self._compiled, self._compiled.layout
        components, moved = self._components(model), self._moved(model)
        partial = torch.zeros(
            (K, compiled.n_blocks, layout.n_sums), dtype=torch.float64, device=self.sizes.device
        )
        if K == 1:
            joint = self._joint(1)
            self._sum(components[0], moved, model.noise, None, joint[0], partial[0])
            evidence = joint[0]
        else:
            joint = self.evidence(model)
            evidence = torch.logsumexp(joint, dim=0)
            responsibilities = torch.exp(joint - evidence)
            for k, component in enumerate(components):
                self._sum(component, moved, model.noise, responsibilities[k], None, partial[k])
        constants = 0.5 * float(self.sizes.sum()) * np.log(2.0 * np.pi * model.noise)
        sums = partial.sum(dim=1).cpu().numpy()
        return Summed(_read(sums, layout, components, model, float(evidence.sum()) - constants), None)

    def evidence(self, model: Mixture, weights: Any = None) -> Any:
        """log π_k p(y | k) (K, T), without what components share; ``weights`` (K, D, T) are filled with E(w − b_k)."""
        joint = self._joint(model.n_components)
        moved = self._moved(model)
        for k, component in enumerate(self._components(model)):
            self._compiled.launch(
                "evidence",
                len(self),
                self.products,
                len(self),
                component.ridge,
                component.mean,
                moved,
                float(model.noise),
                component.constant,
                joint[k],
                None if weights is None else weights[k],
            )
        return joint + self._log_proportions(model)

    def _sum(self, component: Component, moved: Any, noise: float, r: Any, joint: Any, out: Any) -> None:
        arguments = (self.products, len(self), component.ridge, component.mean, moved, float(noise))
        self._compiled.launch("moments", len(self), *arguments, component.constant, r, joint, out)

    def _joint(self, K: int) -> Any:
        import torch

        return torch.empty((K, len(self)), dtype=torch.float64, device=self.sizes.device)

    def _log_proportions(self, model: Mixture) -> Any:
        """log π, (K, 1) or (K, T)."""
        import torch

        if model.gates is None:
            return torch.from_numpy(np.log(model.proportions)).to(self.sizes.device)[:, None]
        gates = torch.from_numpy(model.gates).to(self.sizes.device)
        return torch.log_softmax(gates[:, :1] + gates[:, 1:] @ self.side.T, dim=0)

    def _moved(self, model: Mixture) -> Any:
        """Γv, what the description adds to the mean of each task, (D, T)."""
        import torch

        if model.side is None:
            return None
        Gamma = torch.from_numpy(model.side).to(self.sizes.device)
        return (Gamma @ self.side.T).to(self.products.dtype).contiguous()

    def _components(self, model: Mixture) -> list[Component]:
        return [
            _component(b, W, model.noise, self.sizes.device)
            for b, W in zip(model.means, model.covariances, strict=True)
        ]

    @property
    def _compiled(self) -> Kernels:
        # Statistics are the same with and without an intercept: only their making differs.
        return _kernels(self.n_features, self.products, False)


def _kernels(D: int, like: Any, fit_intercept: bool) -> Kernels:
    stored = "float" if like.element_size() == 4 else "double"
    return kernels(D, stored, fit_intercept, like.device.index)


def _component(b: Array, W: Array, noise: float, device: Any) -> Component:
    import torch

    values, vectors = np.linalg.eigh(W)
    largest = max(float(values[-1]), ABSENT * noise)
    present = values > ROOT_TOLERANCE * largest
    values = np.where(present, values, ABSENT * largest)
    precision = (vectors / values) @ vectors.T
    i, j = np.tril_indices(len(W))
    packed = torch.from_numpy(noise * precision[i, j]).to(device)
    # log det(I + WG/σ²) is that of the system less that of its part without rows.
    constant = -0.5 * float(np.log(values / noise).sum())
    kept = vectors[:, present]
    return Component(packed, torch.from_numpy(np.array(b)).to(device), constant, precision, kept @ kept.T)


def _read(
    sums: Array, layout: Any, components: list[Component], model: Mixture, log_evidence: float
) -> Moments:
    """Moments from the sums of the kernel, in the range of each W."""
    d, n = layout.d, layout.n_system
    counts, left = sums[:, -2], sums[:, -1]
    first, second, residual = [], [], 0.0
    for k, component in enumerate(components):
        products = _unpacked(sums[k, :n], layout.padded)[:d, :d]
        residual += float(left[k])
        residual += model.noise * (d * float(counts[k]) - float(np.sum(component.precision * products)))
        second.append(component.kept @ products @ component.kept)
        first.append(component.kept @ sums[k, n : n + d])
    return Moments(log_evidence, counts, np.array(first), np.array(second), residual)


def _unpacked(packed: Array, size: int) -> Array:
    """The symmetric matrix of a lower triangle."""
    whole = np.zeros((size, size))
    i, j = np.tril_indices(size)
    whole[i, j] = packed
    whole[j, i] = packed
    return whole
