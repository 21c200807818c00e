"""Eight tasks at once: small Cholesky factorisations in which a vector register holds one number of eight tasks.

A 20 × 20 system is too small for the vector units of a processor to be of use within it; side by side, eight of them keep
those busy from the first multiplication to the last.  An array of *rows of lanes* has shape (m, 8): number i of
task l stands in ``[i, l]``.  Compilers do not find this by themselves, so that the inner loops are written as
vector instructions of LLVM, which turns them into those of the processor at hand.

Symmetric and triangular matrices are packed: (i, j), j ≤ i, stands at ``i (i + 1) / 2 + j``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Tasks that stand side by side.
LANES = 8
_ROW = ir.VectorType(ir.DoubleType(), LANES)
#: Callers pass all arguments but the first, which no type says.
_inline: Any = intrinsic
#: Of functions that only compiled ones call: they are kept in what these are compiled to, which is faster than twice.
PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def _row(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    """Pointer to a row of lanes."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _ROW.as_pointer()), [position])


def _subtract_products(n_outputs: int) -> Any:
    """Code for ``out[o + m] -= Σ_i a[u + i] b[v_m + i]`` over i < n, for m < n_outputs, each in its own register."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out, o, a, u, b, *starts, n = args
        zero, one = ir.Constant(n.type, 0), ir.Constant(n.type, 1)
        target = _row(context, builder, signature.args[0], out, o)
        left = _row(context, builder, signature.args[2], a, u)
        right = [_row(context, builder, signature.args[4], b, v) for v in starts]
        places = [builder.gep(target, [ir.Constant(n.type, m)]) for m in range(n_outputs)]
        first = [builder.load(place, align=8) for place in places]
        before, loop = builder.block, builder.append_basic_block("lanes")
        after = builder.append_basic_block("lanes.end")
        builder.cbranch(builder.icmp_signed(">", n, zero), loop, after)
        builder.position_at_end(loop)
        i = builder.phi(n.type)
        i.add_incoming(zero, before)
        sums = [builder.phi(_ROW) for _ in first]
        factor = builder.load(builder.gep(left, [i]), align=8)
        new = []
        for total, row in zip(sums, right, strict=True):
            product = builder.fmul(factor, builder.load(builder.gep(row, [i]), align=8), flags=("contract",))
            new.append(builder.fsub(total, product, flags=("contract",)))
        following = builder.add(i, one)
        i.add_incoming(following, loop)
        for total, start, found in zip(sums, first, new, strict=True):
            total.add_incoming(start, before)
            total.add_incoming(found, loop)
        builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
        builder.position_at_end(after)
        results = [builder.phi(_ROW) for _ in first]
        for result, start, found in zip(results, first, new, strict=True):
            result.add_incoming(start, before)
            result.add_incoming(found, loop)
        for result, place in zip(results, places, strict=True):
            builder.store(result, place, align=8)
        return context.get_dummy_value()

    return generate


@_inline
def subtract(typing: Any, out: Any, o: Any, a: Any, u: Any, b: Any, v: Any, n: Any) -> Any:
    """``out[o] -= Σ_{i<n} a[u + i] b[v + i]``, rows of lanes."""
    i = types.intp
    return types.void(out, i, a, i, b, i, i), _subtract_products(1)


@_inline
def subtract_four(
    typing: Any, out: Any, o: Any, a: Any, u: Any, b: Any, v0: Any, v1: Any, v2: Any, v3: Any, n: Any
) -> Any:
    """``out[o + m] -= Σ_{i<n} a[u + i] b[v_m + i]`` for four m: a is loaded once for all of them."""
    i = types.intp
    return types.void(out, i, a, i, b, i, i, i, i, i), _subtract_products(4)


@_inline
def multiply(typing: Any, out: Any, o: Any, a: Any, u: Any) -> Any:
    """``out[o] *= a[u]``, rows of lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _row(context, builder, signature.args[0], *args[:2])
        factor = builder.load(_row(context, builder, signature.args[2], *args[2:]), align=8)
        builder.store(builder.fmul(builder.load(place, align=8), factor), place, align=8)
        return context.get_dummy_value()

    i = types.intp
    return types.void(out, i, a, i), generate


@_inline
def apart(typing: Any) -> Any:
    """Keeps the function that calls it from being copied into its callers: the compiler would take seconds longer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@njit(**PART)
def factorise(A: Array, p: int, log_pivots: Array) -> None:
    """Cholesky factor of packed systems, in place, reciprocals on its diagonal; ``log_pivots`` (8,) of the pivots' product."""
    apart()
    product = np.ones(LANES)
    for lane in range(LANES):
        log_pivots[lane] = 0.0
    row = 0
    for i in range(p):
        j, other = 0, 0
        while j + 4 <= i:
            r1 = other + j + 1
            r2 = r1 + j + 2
            r3 = r2 + j + 3
            o = row + j
            subtract_four(A, o, A, row, A, other, r1, r2, r3, j)
            multiply(A, o, A, other + j)
            subtract(A, o + 1, A, o, A, r1 + j, 1)
            multiply(A, o + 1, A, r1 + j + 1)
            subtract(A, o + 2, A, o, A, r2 + j, 2)
            multiply(A, o + 2, A, r2 + j + 2)
            subtract(A, o + 3, A, o, A, r3 + j, 3)
            multiply(A, o + 3, A, r3 + j + 3)
            j += 4
            other = r3 + j
        while j < i:
            subtract(A, row + j, A, row, A, other, j)
            multiply(A, row + j, A, other + j)
            j += 1
            other += j
        subtract(A, row + i, A, row, A, row, i)
        for lane in range(LANES):
            pivot = np.sqrt(A[row + i, lane])
            product[lane] *= pivot
            A[row + i, lane] = 1.0 / pivot
        if i % 8 == 7 or i == p - 1:
            # A logarithm for each pivot would cost as much as the factors; more than eight could overflow.
            for lane in range(LANES):
                log_pivots[lane] += np.log(product[lane])
                product[lane] = 1.0
        row += i + 1


@njit(**PART)
def solve_forwards(A: Array, p: int, z: Array) -> None:
    """z becomes ``F⁻¹ z`` for the factors F of `factorise`."""
    apart()
    row = 0
    for i in range(p):
        subtract(z, i, z, 0, A, row, i)
        multiply(z, i, A, row + i)
        row += i + 1


@njit(**PART)
def solve_backwards(A: Array, p: int, z: Array) -> None:
    """z becomes ``F⁻ᵀ z``."""
    apart()
    for i in range(p - 1, -1, -1):
        row = i * (i + 1) // 2
        multiply(z, i, A, row + i)
        for k in range(i):
            subtract(z, k, A, row + k, z, i, 1)


@njit(**PART)
def invert(A: Array, p: int, J: Array) -> None:
    """J = F⁻¹ for the factors F of `factorise`; column j of J, its rows j to p − 1, follows column j − 1."""
    apart()
    column = 0
    for j in range(p):
        row = j * (j + 1) // 2
        for lane in range(LANES):
            J[column, lane] = A[row + j, lane]
        for o in range(column + 1, column + p - j):
            for lane in range(LANES):
                J[o, lane] = 0.0
        i = j + 1
        row += i
        while i + 4 <= p:
            r1 = row + i + 1
            r2 = r1 + i + 2
            r3 = r2 + i + 3
            o = column + i - j
            subtract_four(J, o, J, column, A, row + j, r1 + j, r2 + j, r3 + j, i - j)
            multiply(J, o, A, row + i)
            subtract(J, o + 1, J, o, A, r1 + i, 1)
            multiply(J, o + 1, A, r1 + i + 1)
            subtract(J, o + 2, J, o, A, r2 + i, 2)
            multiply(J, o + 2, A, r2 + i + 2)
            subtract(J, o + 3, J, o, A, r3 + i, 3)
            multiply(J, o + 3, A, r3 + i + 3)
            i += 4
            row = r3 + i
        while i < p:
            subtract(J, column + i - j, J, column, A, row + j, i - j)
            multiply(J, column + i - j, A, row + i)
            i += 1
            row += i
        column += p - j


@njit(**PART)
def subtract_squares(J: Array, u: Array, p: int, total: Array) -> None:
    """``total -= JᵀJ + u uᵀ``, packed, J as from `invert`."""
    apart()
    first = 0
    for a in range(p):
        row, c, other = a * (a + 1) // 2, 0, a
        while c + 4 <= a + 1:
            o1 = other + p - c - 1
            o2 = o1 + p - c - 2
            o3 = o2 + p - c - 3
            subtract_four(total, row + c, J, first, J, other, o1, o2, o3, p - a)
            subtract_four(total, row + c, u, a, u, c, c + 1, c + 2, c + 3, 1)
            c += 4
            other = o3 + p - c
        while c <= a:
            subtract(total, row + c, J, first, J, other, p - a)
            subtract(total, row + c, u, a, u, c, 1)
            c += 1
            other += p - c
        first += p - a
