"""Sufficient statistics of tasks on a GPU, their sums for EM, and the posterior of each task under
a mixture.

The kernels are in ``kernels.cu``.  They are compiled for a number of columns and a floating-point
type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._utils.records import cached_property
from ..gaussian.mixture import Mixture, unpacked
from ..gaussian.moments import NEGLIGIBLE, Summed, Sums, Totals
from ..tasks.reading import label_keys
from ..tasks.rows import Array, Scaling
from ..tasks.task_set import TaskSet
from .base import Reader, Reservoir, Statistics
from .tensors import TensorTasks

if TYPE_CHECKING:
    from torch import Tensor


#: The kernels of ``kernels.cu``: threads per block, as in that file, and blocks per multiprocessor.
#: Together with the device, the number of blocks determines the order of summation.
KERNELS = {"evidence": (128, 4), "moments": (128, 4), "products_of_rows": (256, 8)}


@dataclass(frozen=True)
class Layout:
    """Sizes shared by the kernels and their callers, for systems of ``d`` columns."""

    d: int
    shared_bytes: int  # maximum shared memory of a block

    @property
    def block_size(self) -> int:
        """Block size of the Cholesky factorisation: the first candidate with the least padding."""
        return min((5, 6, 4, 7), key=lambda size: -(-self.d // size) * size)

    @property
    def padded(self) -> int:
        return -(-self.d // self.block_size) * self.block_size

    @property
    def n_system(self) -> int:
        """Number of elements of a system's lower triangle."""
        return self.padded * (self.padded + 1) // 2

    @property
    def n_sums(self) -> int:
        """Number of sums that a block returns: second and first moments, count and residual."""
        return self.n_system + self.padded + 2

    @property
    def tile(self) -> int:
        """Number of tasks in shared memory at once."""
        threads, _ = KERNELS["moments"]
        return min(threads, self.shared_bytes // (8 * (self.n_system + self.padded)))

    @property
    def group(self) -> int:
        """Number of tasks whose products are written at once."""
        return next(
            size for size in (32, 16, 8, 4, 2, 1) if self._product_bytes(size) <= self.shared_bytes
        )

    @property
    def n_products(self) -> int:
        return (self.d + 1) * (self.d + 2) // 2

    def bytes_of(self, kernel: str) -> int:
        """Return the shared memory of a kernel in bytes."""
        if kernel == "products_of_rows":
            return self._product_bytes(self.group)
        return max(8 * (self.n_system + self.padded) * self.tile, 2 * 8 * KERNELS[kernel][0])

    def _product_bytes(self, group: int) -> int:
        # Each of 8 warps loads 8 rows at once, padded to a multiple of 3, the side of its tiles.
        width = -(-(self.d + 1) // 3) * 3
        return 8 * (self.n_products * (group + 1) + 8 * 8 * width)


@dataclass(frozen=True)
class Kernels:
    """Compiled functions for one layout on one device."""

    layout: Layout
    n_multiprocessors: int
    functions: dict[str, Any]

    def launch(self, name: str, *arguments: Any) -> None:
        """Run a kernel on torch's current stream; tensors are passed as pointers, None as the null
        pointer.
        """
        import cupy
        import torch

        threads, blocks = KERNELS[name]
        stream = torch.cuda.current_stream()
        # Older versions of CuPy do not have `from_external`.
        if from_external := getattr(cupy.cuda.Stream, "from_external", None):
            stream = from_external(stream)
        else:
            stream = cupy.cuda.ExternalStream(stream.cuda_stream)
        with stream:
            self.functions[name](
                (self.n_multiprocessors * blocks,),
                (threads,),
                tuple(_kernel_argument(value) for value in arguments),
                shared_mem=self.layout.bytes_of(name),
            )


def _kernel_argument(value: Any) -> Any:
    if value is None:
        return np.uintp(0)
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    return np.uintp(value.data_ptr())


@cache
def _compile(d: int, stored: str, fit_intercept: bool, device: int) -> Kernels:
    """Compile the kernels for ``d`` columns, the last constant if ``fit_intercept``; this takes
    seconds, and is cached.
    """
    import cupy

    with cupy.cuda.Device(device) as current:
        limits = current.attributes
        layout = Layout(d, limits["MaxSharedMemoryPerBlockOptin"])
        if layout.tile == 0:
            raise ValueError(
                f"device: {d} columns do not fit into the GPU's shared memory; use device=None"
            )
        macros = {
            "stored": stored,
            "D": d,
            "INTERCEPT": int(fit_intercept),
            "BLOCK": layout.block_size,
            "TILE": layout.tile,
            "GROUP": layout.group,
        }
        source = files(__package__).joinpath("kernels.cu").read_text()
        options = ("-std=c++17", *(f"-D{name}={value}" for name, value in macros.items()))
        module = cupy.RawModule(code=source, options=options)
        functions = {name: module.get_function(name) for name in KERNELS}
        for name, function in functions.items():
            function.max_dynamic_shared_size_bytes = layout.bytes_of(name)
        return Kernels(layout, limits["MultiProcessorCount"], functions)


def _kernels(d: int, like: Tensor, fit_intercept: bool) -> Kernels:
    """Return the kernels for ``d`` columns and the type and the device of a tensor."""
    stored = "float" if like.element_size() == 4 else "double"
    return _compile(d, stored, fit_intercept, like.device.index)


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
        if model.gates is None:
            return joint + joint.new_tensor(np.log(model.proportions))[:, None]
        assert self.side is not None
        gates = joint.new_tensor(model.gates)
        return joint + (gates[:, :1] + gates[:, 1:] @ self.side.T).log_softmax(0)

    def without_side(self, model: Mixture) -> CudaMoments:
        """Return the statistics after subtracting XΓv, the effect of the side information, from the
        targets.
        """
        if model.side is None:
            return self
        assert self.side is not None
        d, effect = self.n_features, self.side.new_tensor(model.side) @ self.side.T
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

    def _component_sums(
        self, component: Component, noise: float, shares: Tensor | None, log_joint: Tensor | None
    ) -> tuple[Array, Array, float, float]:
        """Return the sums of r u uᵀ, r u and r over the tasks for one component, and the residual.
        r are the responsibilities ``shares`` (None: all are one).

        Tasks with negligible responsibilities are left out.
        """
        compiled = self._compiled_for(component)
        partial = self.sizes.new_zeros(
            (compiled.n_multiprocessors * KERNELS["moments"][1], compiled.layout.n_sums)
        )
        index = None if shares is None else (shares > NEGLIGIBLE).nonzero()[:, 0]
        n = len(self) if index is None else len(index)
        self._launch("moments", component, noise, index, n, shares, log_joint, partial)
        packed, layout = partial.sum(dim=0).cpu().numpy(), compiled.layout
        p, end = len(component.precision), layout.n_system
        products = packed[:end][unpacked(layout.padded)][:p, :p]
        return products, packed[end : end + p], float(packed[-2]), float(packed[-1])

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
        # Products in other coordinates are computed in double precision, the type of the sizes.  An
        # intercept only makes a difference when products are computed.
        like = self.products if component.reduction is None else self.sizes
        return _kernels(len(component.precision), like, False)

    def _empty(self, n_rows: int) -> Tensor:
        return self.sizes.new_empty((n_rows, len(self)))

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
    sums: list[tuple[Array, Array, float, float]],
    components: list[Component],
    model: Mixture,
    log_evidence: float,
) -> Sums:
    """Convert the sums of `CudaMoments._component_sums` to the coordinates of the weights."""
    first, second, counts, residual = [], [], [], 0.0
    for (products, means, count, squares), component in zip(sums, components, strict=True):
        residual += squares + model.noise * (
            len(means) * count - float(np.sum(component.precision * products))
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
