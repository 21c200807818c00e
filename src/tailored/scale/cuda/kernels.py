"""Compile the kernels of ``kernels.cu`` for a number of columns and a floating-point type, and
launch them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

KERNELS = ("evidence", "moments", "products_of_rows")
#: Threads per block of the posterior kernels, and of the kernel that computes products, as in
#: ``kernels.cu``.
THREADS, ROW_THREADS = 128, 256
#: Number of blocks per multiprocessor of these kernels.  Together with the device, it determines
#: the order of summation.
BLOCKS, ROW_BLOCKS = 4, 8
#: Number of rows that a warp loads at once, and side length of its tiles of products, as in
#: ``kernels.cu``.
AHEAD, SIDE = 8, 3
#: Candidate block sizes of the Cholesky factorisation.  The first one with the least padding is
#: used.
BLOCK_SIZES = (5, 6, 4, 7)


@dataclass(frozen=True)
class Layout:
    """Sizes shared by the kernels and their callers, for systems of ``d`` columns."""

    d: int
    shared_bytes: int  # maximum shared memory of a block

    @property
    def block_size(self) -> int:
        return min(BLOCK_SIZES, key=lambda size: -(-self.d // size) * size)

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
        return min(THREADS, self.shared_bytes // (8 * (self.n_system + self.padded)))

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
        return max(8 * (self.n_system + self.padded) * self.tile, 2 * 8 * THREADS)

    def _product_bytes(self, group: int) -> int:
        width = -(-(self.d + 1) // SIDE) * SIDE
        return 8 * (self.n_products * (group + 1) + (ROW_THREADS // 32) * AHEAD * width)


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
        import torch

        rows = name == "products_of_rows"
        blocks = self.n_multiprocessors * (ROW_BLOCKS if rows else BLOCKS)
        with _cupy_stream(torch.cuda.current_stream()):
            self.functions[name](
                (blocks,),
                (ROW_THREADS if rows else THREADS,),
                tuple(_kernel_argument(value) for value in arguments),
                shared_mem=self.layout.bytes_of(name),
            )


def _cupy_stream(current: Any) -> Any:
    """Return torch's stream as a CuPy stream, for old and new versions of CuPy."""
    import cupy

    from_external = getattr(cupy.cuda.Stream, "from_external", None)
    return (
        cupy.cuda.ExternalStream(current.cuda_stream)
        if from_external is None
        else from_external(current)
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
def kernels(d: int, stored: str, fit_intercept: bool, device: int) -> Kernels:
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
