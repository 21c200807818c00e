"""Sufficient statistics of tasks on a GPU, their sums for EM, and the posterior of each task under
a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..._utils.records import cached_property
from ...gaussian.mixture import Mixture, unpacked
from ...gaussian.moments import NEGLIGIBLE, Summed, Sums, Totals
from ...tasks.reading import label_keys
from ...tasks.rows import Array, Scaling
from ...tasks.task_set import TaskSet
from ..base import Reader, Statistics
from ..reservoir import Reservoir
from .kernels import BLOCKS, Kernels, kernels
from .tensors import TensorTasks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DeviceSource:
    """Tasks whose rows are tensors on a device.  Labels and seed determine the sample."""

    tasks: TensorTasks
    seed: int
    in_memory: TaskSet | None = (
        None  # the same tasks, with column names and encoding, if they were copied
    )

    @cached_property
    def reservoir(self) -> Reservoir:
        empty = Reservoir(seed=self.seed)
        if self.in_memory is not None:
            return empty.take(self.in_memory)
        # Add one task more than the sample may contain, so that `Reservoir.limit` is set.
        keys = label_keys(self.tasks.names, self.seed)
        first = np.sort(np.argsort(keys, kind="stable")[: empty.size + 1])
        return empty.take(self.tasks.take(first))

    def statistics(self, read: Reader) -> Statistics:
        """Compute statistics in the memory of the device."""
        tasks, side_tasks = self.tasks, self.tasks.side_tasks
        side = None if read.side is None or side_tasks is None else read.side(side_tasks)
        if read.residuals is not None:  # shared effects are computed on the CPU
            in_memory = (
                tasks.take(np.arange(len(tasks))) if self.in_memory is None else self.in_memory
            )
            tasks = TensorTasks.from_tasks(read.residuals(in_memory), tasks.X.device)
        return CudaMoments.of(tasks, read.scaling, side)


class Component(NamedTuple):
    """A component of a mixture in the form that the kernels use: ``w = b + L u`` with u ~ N(0, Q⁻¹)
    in p dimensions.

    If the covariance W of w has full rank, L is the identity.  Otherwise p is the rank of W, and
    ``reduction`` maps the packed products to these coordinates.
    """

    ridge: Array | Tensor  # σ²Q, packed
    mean: Array | Tensor
    constant: float
    precision: Array  # Q
    root: Array | None = None  # L
    reduction: Array | Tensor | None = None


@dataclass(frozen=True)
class CudaMoments:
    """Sufficient statistics of T tasks as tensors in the memory of a device."""

    #: (E, T) products of the D columns and the target: the lower triangle row by row, E = (D + 1)(D
    #: + 2) / 2.
    products: Tensor
    sizes: Tensor  # (T,) number of rows
    n_features: int  # D
    side: Tensor | None = None  # (T, q) features of the side information

    @classmethod
    def of(cls, tasks: TensorTasks, scaling: Scaling, side: Array | None = None) -> CudaMoments:
        """Compute the statistics of scaled rows."""
        D, T = len(scaling.columns), len(tasks)
        compiled = _kernels(D, tasks.X, scaling.fit_intercept)
        shift = np.append(scaling.shift, scaling.target_shift)
        scale = 1.0 / np.append(scaling.columns, scaling.target)
        products = tasks.X.new_empty((compiled.layout.n_products, T))
        sizes = tasks.offsets.diff().double()
        scales = [sizes.new_tensor(part) for part in (shift, scale)]
        compiled.launch("products_of_rows", tasks.X, tasks.y, tasks.offsets, T, *scales, products)
        # Checking the products is cheaper than checking every row.
        if not bool(products.sum(dtype=sizes.dtype).isfinite()):
            raise ValueError(
                "X, y: the tensors contain NaN, infinity, or values whose squares overflow; remove "
                "those rows"
            )
        return cls(products, sizes, D, None if side is None else sizes.new_tensor(side))

    def __len__(self) -> int:
        return len(self.sizes)

    def totals(self) -> Totals:
        packed = self.products.sum(dim=1, dtype=self.sizes.dtype).cpu().numpy()
        d = self.n_features
        whole = packed[unpacked(d + 1)]
        return Totals(
            len(self), float(self.sizes.sum()), float(whole[d, d]), whole[d, :d], whole[:d, :d]
        )

    def sums(self, model: Mixture, shares: object = None) -> Summed:
        """Return the expected sufficient statistics.

        Earlier ``shares`` are ignored: they would only save time in the faster of the two kernels.
        """
        if model.side is not None:
            return self.without_side(model).sums(replace(model, side=None))
        components = self._components(model)
        if len(components) == 1:
            log_evidence = self._empty(1)[0]
            sums = [self._component_sums(components[0], model.noise, None, log_evidence)]
        else:
            joint = self.log_joint(model, components)
            log_evidence = joint.logsumexp(0)
            weights = (joint - log_evidence).exp()
            sums = [
                self._component_sums(c, model.noise, weights[k], None)
                for k, c in enumerate(components)
            ]
        constants = 0.5 * float(self.sizes.sum()) * np.log(2.0 * np.pi * model.noise)
        return Summed(
            _read_sums(sums, components, model, float(log_evidence.sum()) - constants), None
        )

    def posterior(self, model: Mixture) -> tuple[Tensor, Tensor]:
        """Return the responsibilities (T, K), and the posterior means of the weights given the
        component, (T, K, D).
        """
        means = self.sizes.new_empty((model.n_components, self.n_features, len(self)))
        joint = self.without_side(model).log_joint(model, self._components(model), means)
        shares = (joint - joint.logsumexp(0)).exp()
        means += self.sizes.new_tensor(model.means)[:, :, None]
        if model.side is not None:
            assert self.side is not None
            means += self.sizes.new_tensor(model.side) @ self.side.T
        return shares.T, means.permute(2, 0, 1)

    def log_joint(
        self, model: Mixture, components: list[Component], deviations: Tensor | None = None
    ) -> Tensor:
        """Return log π_k p(y | k), (K, T), up to a constant that is the same for all components.

        E(w − b_k − Γv) is written to ``deviations`` (K, D, T), if given.  XΓv must be subtracted
        from the targets before.
        """
        joint = self._empty(model.n_components)
        for k, component in enumerate(components):
            out = None if deviations is None else deviations[k]
            if deviations is not None and component.root is not None:
                out = self._empty(component.root.shape[1])
            self._launch("evidence", component, model.noise, joint[k], out)
            if deviations is not None and component.root is not None:
                deviations[k] = joint.new_tensor(component.root) @ out
        return joint + self._log_proportions(model)

    def without_side(self, model: Mixture) -> CudaMoments:
        """Return the statistics after subtracting XΓv, the effect of the side information, from the
        targets.
        """
        if model.side is None:
            return self
        assert self.side is not None
        return self.shifted(self.side @ self.side.new_tensor(model.side).T)

    def shifted(self, weights: Tensor) -> CudaMoments:
        """Return the statistics with targets ``y − Xw``, for the weights (T, D) of each task."""
        d, effect = self.n_features, weights.T
        products = self.products.clone()
        position = unpacked(d + 1)
        cross = products[position[d, :d]].double()
        residual = cross.clone()
        for i in range(d):
            residual[i] -= (self.products[position[i, :d]] * effect).sum(dim=0)
        # yᵀy − w·Xᵀy − w·Xᵀ(y − Xw)
        square = products[position[d, d]] - ((cross + residual) * effect).sum(dim=0)
        products[position[d, d]] = square.clamp(min=0.0).to(products.dtype)
        products[position[d, :d]] = residual.to(products.dtype)
        return replace(self, products=products)

    def dense(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return XᵀX (T, D, D), Xᵀy (T, D) and yᵀy (T,) in double precision."""
        d = self.n_features
        position, products = unpacked(d + 1), self.products.double().T
        return (
            products[:, position[:d, :d]],
            products[:, position[d, :d]],
            products[:, position[d, d]],
        )

    def _component_sums(
        self, component: Component, noise: float, shares: Tensor | None, log_joint: Tensor | None
    ) -> Array:
        """Return the packed sums of one component, weighted by the responsibilities ``shares``
        (None: all are one).

        Tasks with negligible responsibilities are left out.
        """
        compiled = self._compiled_for(component)
        partial = self.sizes.new_zeros(
            (compiled.n_multiprocessors * BLOCKS, compiled.layout.n_sums)
        )
        index = None if shares is None else (shares > NEGLIGIBLE).nonzero()[:, 0]
        n = len(self) if index is None else len(index)
        self._launch("moments", component, noise, index, n, shares, log_joint, partial)
        sums: Array = partial.sum(dim=0).cpu().numpy()
        return sums

    def _launch(
        self, name: str, component: Component, noise: float, *arguments: Tensor | int | None
    ) -> None:
        """Run a kernel on the statistics in the coordinates of a component."""
        products = self.products
        if component.reduction is not None:
            products = component.reduction @ products.double()
        common = (
            products,
            len(self),
            component.ridge,
            component.mean,
            float(noise),
            component.constant,
        )
        self._compiled_for(component).launch(name, *common, *arguments)

    def _compiled_for(self, component: Component) -> Kernels:
        if component.reduction is None:
            # An intercept only makes a difference when products are computed.
            return _kernels(self.n_features, self.products, False)
        return kernels(len(component.precision), "double", False, self.sizes.device.index)

    def _empty(self, n_rows: int) -> Tensor:
        return self.sizes.new_empty((n_rows, len(self)))

    def _log_proportions(self, model: Mixture) -> Tensor:
        """Return log π, (K, 1), or (K, T) if the mixing weights depend on the side information."""
        if model.gates is None:
            return self.sizes.new_tensor(np.log(model.proportions))[:, None]
        assert self.side is not None
        gates = self.sizes.new_tensor(model.gates)
        return (gates[:, :1] + gates[:, 1:] @ self.side.T).log_softmax(0)

    def _components(self, model: Mixture) -> list[Component]:
        """Return the components, with the arrays that kernels read copied to the device."""

        def to_device(value: Array | Tensor | None) -> Tensor | None:
            return None if value is None else self.sizes.new_tensor(np.ascontiguousarray(value))

        return [
            c._replace(
                ridge=to_device(c.ridge), mean=to_device(c.mean), reduction=to_device(c.reduction)
            )
            for c in (_component(model, k) for k in range(model.n_components))
        ]


def _kernels(D: int, like: Tensor, fit_intercept: bool) -> Kernels:
    stored = "float" if like.element_size() == 4 else "double"
    return kernels(D, stored, fit_intercept, like.device.index)


def _component(model: Mixture, k: int) -> Component:
    """Return component k of a mixture, with NumPy arrays."""
    components, b, noise = model.components, model.means[k], model.noise
    d = len(b)
    if components.ranks[k] == d:
        ridge = components.precisions[k]
        constant = 0.5 * float(d * np.log(noise) - components.log_determinants[k])
        return Component(ridge, b, constant, ridge[unpacked(d)] / noise)
    # If the covariance is zero, one coordinate with a zero column is kept, because the kernels need
    # at least one.
    p = max(int(components.ranks[k]), 1)
    root = components.roots[k, :p].T
    # The columns of [X, y] A are XL and y − Xb.
    A = np.zeros((d + 1, p + 1))
    A[:-1, :-1], A[:-1, -1], A[-1, -1] = root, -b, 1.0
    ridge, constant = noise * np.eye(p)[np.tril_indices(p)], 0.5 * p * float(np.log(noise))
    return Component(ridge, np.zeros(p), constant, np.eye(p), root, _congruence(A))


def _read_sums(
    sums: list[Array], components: list[Component], model: Mixture, log_evidence: float
) -> Sums:
    """Unpack the kernel's sums for each component: r E(u uᵀ), r E(u), r and the residual."""
    first, second, counts, residual = [], [], [], 0.0
    for packed, component in zip(sums, components, strict=True):
        p = len(component.precision)
        padded = round((np.sqrt(8 * (len(packed) - 2) + 9) - 3) / 2)
        n = padded * (padded + 1) // 2
        products, means = packed[:n][unpacked(padded)][:p, :p], packed[n : n + p]
        count, squares = float(packed[-2]), float(packed[-1])
        residual += squares + model.noise * (
            p * count - float(np.sum(component.precision * products))
        )
        root = component.root
        second.append(products if root is None else root @ products @ root.T)
        first.append(means if root is None else root @ means)
        counts.append(count)
    return Sums(log_evidence, np.array(counts), np.array(first), np.array(second), residual)


def _congruence(A: Array) -> Array:
    """Return the matrix that maps the packed lower triangle of P to that of AᵀPA."""
    i, j = np.tril_indices(len(A))
    c, r = np.tril_indices(A.shape[1])
    one, other = A[i][:, c] * A[j][:, r], A[j][:, c] * A[i][:, r]
    return np.where((i == j)[:, None], one, one + other).T
