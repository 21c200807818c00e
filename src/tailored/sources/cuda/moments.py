"""Statistics of tasks on a device: the sums of EM, and what each task says under a mixture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...gaussian import Mixture, Moments, Summed, Totals
from ...tasks import Units
from .compiling import Kernels, kernels
from .tensors import TensorTasks

Array = NDArray[np.float64]

#: Directions of W below this part of its largest are taken as absent, as in `tailored.gaussian`.
ROOT_TOLERANCE = 1e-6


class Component(NamedTuple):
    """One component as the kernels see it: ``w = b + L u``, u ~ N(0, Q⁻¹) with p coordinates.

    Where W has full rank L is the identity, and statistics are used as they are; else p is its rank, and they are brought
    to its coordinates by ``reduction``: what is linear in products is linear in their packed numbers.
    """

    ridge: Any  # σ²Q, packed
    mean: Any
    constant: float
    precision: Array  # Q
    root: Array | None = None  # L
    reduction: Any = None


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
        compiled.launch("products_of_rows", tasks.X, tasks.y, tasks.offsets, T, *where, products)
        # Cheaper than to look at every row: what is not finite there is not finite here.
        if not bool(torch.isfinite(products.sum(dtype=torch.float64))):
            raise ValueError("X, y: NaN, infinity, or numbers whose squares are")
        known = None if side is None else torch.tensor(side, device=device)
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

        if model.side is not None:
            return self.without_side(model).moments(replace(model, side=None))
        components = self._components(model)
        if len(components) == 1:
            evidence = self._joint(1)[0]
            sums = [self._sums(components[0], model.noise, None, evidence)]
        else:
            joint = self.evidence(model)
            evidence = torch.logsumexp(joint, dim=0)
            r = torch.exp(joint - evidence)
            sums = [self._sums(c, model.noise, r[k], None) for k, c in enumerate(components)]
        constants = 0.5 * float(self.sizes.sum()) * np.log(2.0 * np.pi * model.noise)
        return Summed(_read(sums, components, model, float(evidence.sum()) - constants), None)

    def evidence(self, model: Mixture, weights: Any = None) -> Any:
        """log π_k p(y | k) (K, T), without what components share; ``weights`` (K, D, T) are filled with E(w − b_k − Γv)."""
        import torch

        if model.side is not None:
            return self.without_side(model).evidence(replace(model, side=None), weights)
        joint = self._joint(model.n_components)
        for k, component in enumerate(self._components(model)):
            out = None if weights is None else weights[k]
            if weights is not None and component.root is not None:
                shape = (component.root.shape[1], len(self))
                out = torch.empty(shape, dtype=torch.float64, device=joint.device)
            self._ask("evidence", component, model.noise, joint[k], out)
            if weights is not None and component.root is not None:
                torch.matmul(torch.from_numpy(component.root).to(joint.device), out, out=weights[k])
        return joint + self._log_proportions(model)

    def without_side(self, model: Mixture) -> CudaStatistics:
        """The tasks with what their description predicts, Γv, taken off their targets."""
        import torch

        if model.side is None:
            return self
        d = self.n_features
        moved = torch.from_numpy(model.side).to(self.side.device) @ self.side.T
        products = self.products.clone()
        place = _places(d + 1)
        cross = products[place[d, :d]].double()
        left = cross.clone()
        for i in range(d):
            left[i] -= (self.products[place[i, :d]] * moved).sum(dim=0)
        # yᵀy − w·Xᵀy − w·Xᵀ(y − Xw)
        products[place[d, d]] = torch.clamp(
            products[place[d, d]] - ((cross + left) * moved).sum(dim=0), min=0.0
        ).to(products.dtype)
        products[place[d, :d]] = left.to(products.dtype)
        return replace(self, products=products)

    def dense(self) -> tuple[Any, Any, Any]:
        """XᵀX (T, D, D), Xᵀy (T, D) and yᵀy (T,) in double precision."""
        d = self.n_features
        place, products = _places(d + 1), self.products.double().T
        return products[:, place[:d, :d]], products[:, place[d, :d]], products[:, place[d, d]]

    def _sums(self, component: Component, noise: float, r: Any, joint: Any) -> Array:
        """The numbers of `_read` for one component, weighted by ``r`` (None: one for each task)."""
        import torch

        compiled = self._compiled_for(component)
        shape = (compiled.n_blocks, compiled.layout.n_sums)
        partial = torch.zeros(shape, dtype=torch.float64, device=self.sizes.device)
        self._ask("moments", component, noise, r, joint, partial)
        found: Array = partial.sum(dim=0).cpu().numpy()
        return found

    def _ask(self, name: str, component: Component, noise: float, *arguments: Any) -> None:
        """Run a kernel on the statistics, in the component's coordinates."""
        products = self.products
        if component.reduction is not None:
            products = component.reduction @ products.double()
        common = (products, len(self), component.ridge, component.mean, float(noise), component.constant)
        self._compiled_for(component).launch(name, *common, *arguments)

    def _compiled_for(self, component: Component) -> Kernels:
        if component.reduction is None:
            return self._compiled
        return kernels(len(component.precision), "double", False, self.sizes.device.index)

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

    def there(value: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(value)).to(device)

    values, vectors = np.linalg.eigh(W)
    present = values > ROOT_TOLERANCE * max(float(values[-1]), np.finfo(float).tiny)
    if present.all():
        precision = (vectors / values) @ vectors.T
        constant = -0.5 * float(np.log(values / noise).sum())
        return Component(there(noise * _packed(precision)), there(b), constant, precision)
    # A model in which tasks do not differ has one coordinate whose column is zero: nothing is learned of it.
    root = vectors[:, present] * np.sqrt(values[present]) if present.any() else np.zeros((len(b), 1))
    p = root.shape[1]
    # [X, y] A has the columns XL and y − Xb.
    A = np.zeros((len(b) + 1, p + 1))
    A[:-1, :-1], A[:-1, -1], A[-1, -1] = root, -b, 1.0
    ridge, constant = there(noise * _packed(np.eye(p))), 0.5 * p * float(np.log(noise))
    return Component(ridge, there(np.zeros(p)), constant, np.eye(p), root, there(_congruence(A)))


def _read(sums: list[Array], components: list[Component], model: Mixture, log_evidence: float) -> Moments:
    """Moments from the sums of the kernel: r E(u uᵀ), r E(u), r and what is left."""
    first, second, counts, residual = [], [], [], 0.0
    for found, component in zip(sums, components, strict=True):
        p = len(component.precision)
        padded = round((np.sqrt(8 * (len(found) - 2) + 9) - 3) / 2)
        n = padded * (padded + 1) // 2
        products, means = _unpacked(found[:n], padded)[:p, :p], found[n : n + p]
        count, left = float(found[-2]), float(found[-1])
        residual += left + model.noise * (p * count - float(np.sum(component.precision * products)))
        root = component.root
        second.append(products if root is None else root @ products @ root.T)
        first.append(means if root is None else root @ means)
        counts.append(count)
    return Moments(log_evidence, np.array(counts), np.array(first), np.array(second), residual)


def _congruence(A: Array) -> Array:
    """The matrix that takes the lower triangle of P to that of AᵀPA."""
    i, j = np.tril_indices(len(A))
    c, r = np.tril_indices(A.shape[1])
    one, other = A[i][:, c] * A[j][:, r], A[j][:, c] * A[i][:, r]
    return np.where((i == j)[:, None], one, one + other).T


def _places(size: int) -> NDArray[np.int64]:
    """Where the elements of a symmetric matrix are among those of its lower triangle."""
    i, j = np.tril_indices(size)
    place = np.zeros((size, size), dtype=np.int64)
    place[i, j] = place[j, i] = np.arange(len(i))
    return place


def _packed(whole: Array) -> Array:
    return whole[np.tril_indices(len(whole))]


def _unpacked(packed: Array, size: int) -> Array:
    """The symmetric matrix of a lower triangle."""
    whole = np.zeros((size, size))
    i, j = np.tril_indices(size)
    whole[i, j] = packed
    whole[j, i] = packed
    return whole
