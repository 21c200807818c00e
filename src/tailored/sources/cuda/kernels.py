"""The kernels of ``kernels.cu``, compiled for a number of columns and a kind of numbers, and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

KERNELS = ("evidence", "moments", "products_of_rows")
#: Threads of a block, as in ``kernels.cu``; those of the products.
THREADS, ROW_THREADS = 128, 256
#: Blocks of a launch for each multiprocessor.  Fixed sums: their order depends on the device alone.
BLOCKS, ROW_BLOCKS = 4, 8
#: Rows that a warp loads ahead, and columns and rows of its tiles, as in ``kernels.cu``.
AHEAD, SIDE = 8, 3
#: Pieces that systems are factored in: the least padding wins, then the first.
PIECES = (5, 6, 4, 7)


@dataclass(frozen=True)
class Layout:
    """Sizes that the kernels and their callers agree on, for systems of ``d`` columns."""

    d: int
    shared_bytes: int  # that a block may have

    @property
    def piece(self) -> int:
        return min(PIECES, key=lambda piece: -(-self.d // piece) * piece)

    @property
    def padded(self) -> int:
        return -(-self.d // self.piece) * self.piece

    @property
    def n_system(self) -> int:
        """Numbers of a system's lower triangle."""
        return self.padded * (self.padded + 1) // 2

    @property
    def n_sums(self) -> int:
        """Numbers that a block returns: the second and first moments, the count and what is left."""
        return self.n_system + self.padded + 2

    @property
    def tile(self) -> int:
        """Tasks in shared memory at once."""
        return min(THREADS, self.shared_bytes // (8 * (self.n_system + self.padded)))

    @property
    def group(self) -> int:
        """Tasks whose products are written at once."""
        return next(size for size in (32, 16, 8, 4, 2, 1) if self._product_bytes(size) <= self.shared_bytes)

    @property
    def n_products(self) -> int:
        return (self.d + 1) * (self.d + 2) // 2

    @property
    def system_bytes(self) -> int:
        return max(8 * (self.n_system + self.padded) * self.tile, 2 * 8 * THREADS)

    @property
    def product_bytes(self) -> int:
        return self._product_bytes(self.group)

    def bytes_of(self, kernel: str) -> int:
        """Shared memory of a kernel."""
        return self.product_bytes if kernel == "products_of_rows" else self.system_bytes

    def _product_bytes(self, group: int) -> int:
        width = -(-(self.d + 1) // SIDE) * SIDE
        return 8 * (self.n_products * (group + 1) + (ROW_THREADS // 32) * AHEAD * width)


@dataclass(frozen=True)
class Kernels:
    """The compiled functions for one layout, on one device."""

    layout: Layout
    n_multiprocessors: int
    functions: dict[str, Any]

    def launch(self, name: str, *arguments: Any) -> None:
        """Run a kernel on torch's stream; tensors go as pointers, None as the null pointer."""
        import torch

        rows = name == "products_of_rows"
        blocks = self.n_multiprocessors * (ROW_BLOCKS if rows else BLOCKS)
        with _stream(torch.cuda.current_stream()):
            self.functions[name](
                (blocks,),
                (ROW_THREADS if rows else THREADS,),
                tuple(_passed(value) for value in arguments),
                shared_mem=self.layout.bytes_of(name),
            )

    @property
    def n_blocks(self) -> int:
        """Blocks that sum moments."""
        return self.n_multiprocessors * BLOCKS


def _stream(current: Any) -> Any:
    """Torch's stream as one of CuPy."""
    import cupy

    made = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(current.cuda_stream) if made is None else made(current)


def _passed(value: Any) -> Any:
    if value is None:
        return np.uintp(0)
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    return np.uintp(value.data_ptr())


@cache
def kernels(d: int, stored: str, fit_intercept: bool, device: int) -> Kernels:
    """Compile for ``d`` columns, the last of them constant where ``fit_intercept``; seconds, once for each kind."""
    import cupy

    with cupy.cuda.Device(device) as current:
        limits = current.attributes
        layout = Layout(d, limits["MaxSharedMemoryPerBlockOptin"])
        if layout.tile == 0:
            raise ValueError(f"device: {d} columns are too many for the kernel; use device=None")
        macros = {
            "stored": stored,
            "D": d,
            "INTERCEPT": int(fit_intercept),
            "BLOCK": layout.piece,
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
