"""Compiled kernels: small Cholesky factorisations, and second moments of rows.

A single 20 x 20 system is too small to use the vector units of a processor well.  The
factorisations therefore process eight systems at once: a vector holds the same entry of eight
tasks.  A *workspace* is an array (m, 8) of such vectors, where ``work[i, l]`` is entry i of task l.
A matrix is identified by the index of its first vector.  Compilers do not vectorise over tasks
automatically, so the inner loops are LLVM vector instructions, which also compile several times
faster.

Symmetric and triangular matrices are packed: entry (i, j), j <= i, is at ``i (i + 1) / 2 + j``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .._utils.compiling import njit
from ..tasks.rows import Array

#: Tasks per vector.
LANES = 8
_ROW = ir.VectorType(ir.DoubleType(), LANES)
_NUMBER = types.intp
#: Callers omit the first argument (the typing context), which the annotations of `intrinsic` do not
#: express.
_inline: Any = intrinsic
#: Options of all kernels of this module.  Numba's rewrite passes are off: they take time and would
#: not change these kernels.
_PLAIN: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_rewrites": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
#: Options of kernels that are called only by other kernels: they need no Python wrappers.
PART: dict[str, Any] = {**_PLAIN, "no_cpython_wrapper": True}
#: Options of kernels that are called from Python.
ENTRY: dict[str, Any] = {**_PLAIN, "cache": True}


def empty_workspace(n_rows: int) -> Array:
    """Allocate a workspace whose vectors are aligned with cache lines."""
    line = LANES * 8
    whole = np.empty((n_rows + 1) * LANES)
    first = -whole.__array_interface__["data"][0] % line // 8
    return whole[first : first + n_rows * LANES].reshape(n_rows, LANES)


def _at(context: Any, builder: Any, kind: Any, array: Any, position: Any, unit: Any = _ROW) -> Any:
    """Return a pointer to element ``position`` of the array data, read as vectors or as another
    LLVM type.
    """
    data = builder.extract_value(array, context.data_model_manager[kind].get_field_position("data"))
    return builder.gep(builder.bitcast(data, unit.as_pointer()), [position])


@_inline
def subtract(typing: Any, work: Any, o: Any, u: Any, v: Any, n: Any) -> Any:
    """``work[o] -= Σ_{i<n} work[u + i] work[v + i]``, with the sum in a register."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work, *starts, n = args
        zero, one = ir.Constant(n.type, 0), ir.Constant(n.type, 1)
        target, left, right = (
            _at(context, builder, signature.args[0], work, start) for start in starts
        )
        first = builder.load(target, align=8)
        before, loop = builder.block, builder.append_basic_block("lanes")
        after = builder.append_basic_block("lanes.end")
        builder.cbranch(builder.icmp_signed(">", n, zero), loop, after)
        builder.position_at_end(loop)
        i, total = builder.phi(n.type), builder.phi(_ROW)
        factors = [builder.load(builder.gep(start, [i]), align=8) for start in (left, right)]
        product = builder.fmul(*factors, flags=("contract",))
        new, following = builder.fsub(total, product, flags=("contract",)), builder.add(i, one)
        i.add_incoming(zero, before)
        i.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
        builder.position_at_end(after)
        result = builder.phi(_ROW)
        result.add_incoming(first, before)
        result.add_incoming(new, loop)
        total.add_incoming(first, before)
        total.add_incoming(new, loop)
        builder.store(result, target, align=8)
        return context.get_dummy_value()

    return types.void(work, *(_NUMBER,) * 4), generate


def _elementwise(compute: Callable[[Any, Any, Any], Any], kind: Any = _NUMBER) -> Any:
    """Return a function (work, o, x) for ``work[o] = compute(builder, work[o], x)``; x is a scalar
    or ``work[x]``, see ``kind``.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work, o, x = args
        place = _at(context, builder, signature.args[0], work, o)
        if kind is _NUMBER:
            right = builder.load(_at(context, builder, signature.args[0], work, x), align=8)
        else:
            row = builder.insert_element(ir.Constant(_ROW, ir.Undefined), x, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            right = builder.shuffle_vector(row, row, zeros)
        builder.store(compute(builder, builder.load(place, align=8), right), place, align=8)
        return context.get_dummy_value()

    return _inline(lambda typing, work, o, x: (types.void(work, _NUMBER, kind), generate))


def _root_of_larger(builder: Any, a: Any, b: Any) -> Any:
    root = builder.module.declare_intrinsic(
        f"llvm.sqrt.v{LANES}f64", fnty=ir.FunctionType(_ROW, [_ROW])
    )
    return builder.call(root, [builder.select(builder.fcmp_ordered("<", a, b), b, a)])


# ``work[o] = work[u]``, ``work[o] *= work[u]`` and ``work[o] = √max(work[o], work[u])``,
# elementwise
copy = _elementwise(lambda builder, a, b: b)
multiply = _elementwise(lambda builder, a, b: builder.fmul(a, b))
take_root = _elementwise(_root_of_larger)
# ``work[o] = x``, ``work[o] += x`` and ``work[o] = x / work[o]`` for a scalar x
fill = _elementwise(lambda builder, a, b: b, types.float64)
add = _elementwise(lambda builder, a, b: builder.fadd(a, b), types.float64)
divide = _elementwise(lambda builder, a, b: builder.fdiv(b, a), types.float64)


@_inline
def gather(
    typing: Any, work: Any, o: Any, array: Any, stride: Any, offset: Any, tasks: Any, first: Any
) -> Any:
    """Set ``work[o, l]`` to ``array.flat[stride * tasks.flat[first + l] + offset]``; ``array``,
    ``tasks`` must be C-contiguous.
    """
    if array.layout != "C" or tasks.layout != "C":
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work, o, array, stride, offset, tasks, first = args
        start = _at(context, builder, signature.args[2], array, offset, ir.DoubleType())
        who = _at(context, builder, signature.args[5], tasks, first, stride.type)
        row = ir.Constant(_ROW, ir.Undefined)
        for lane in range(LANES):
            task = builder.load(builder.gep(who, [ir.Constant(stride.type, lane)]))
            value = builder.load(builder.gep(start, [builder.mul(task, stride)]))
            row = builder.insert_element(row, value, ir.IntType(32)(lane))
        builder.store(row, _at(context, builder, signature.args[0], work, o), align=8)
        return context.get_dummy_value()

    return types.void(work, _NUMBER, array, _NUMBER, _NUMBER, tasks, _NUMBER), generate


@_inline
def keep_separate(typing: Any) -> Any:
    """Prevent inlining of the calling function and unrolling of its loops.

    Both would add seconds of compile time without a benefit: the inner loops are vector
    instructions already.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for attribute in ("noinline", "optsize"):
            builder.function.attributes.add(attribute)
        return context.get_dummy_value()

    return types.void(), generate


@njit(**PART)
def clear(work: Array, o: int, n: int) -> None:
    """Set n vectors to zero."""
    keep_separate()
    for i in range(o, o + n):
        fill(work, i, 0.0)


@njit(**PART)
def subtract_multiple(work: Array, o: int, u: int, v: int, n: int) -> None:
    """``work[o + i] -= work[u] work[v + i]`` for i < n."""
    keep_separate()
    for i in range(n):
        subtract(work, o + i, u, v + i, 1)


@njit(**PART)
def subtract_each(work: Array, o: int, m: int, u: int, v: int, n: int) -> None:
    """``work[o + c] -= Σ_{i<n} work[u + i] work[v + c n + i]`` for c < m."""
    keep_separate()
    for c in range(m):
        subtract(work, o + c, u, v + c * n, n)


@njit(**PART)
def substitute(work: Array, A: int, p: int, m: int, x: int) -> None:
    """Replace x by F⁻¹ x, where F is the block of the last m rows and columns of the factor (p, p)
    in A.
    """
    keep_separate()
    begin = p - m
    row = A + begin * (begin + 3) // 2
    for i in range(m):
        subtract(work, x + i, x, row, i)
        multiply(work, x + i, row + i)
        row += begin + i + 1


@njit(**PART)
def factorise(work: Array, A: int, p: int, floors: int, log_pivots: int) -> None:
    """Replace systems by their Cholesky factors F, and write log |F| to ``log_pivots``.

    The diagonals of F are stored as reciprocals.  The vector after ``log_pivots`` is overwritten.
    The systems are G + P with a positive semidefinite G, and ``floors`` are the squared pivots of
    P.  In exact arithmetic, those of G + P are not smaller; smaller values are rounding errors and
    are replaced by ``floors``.
    """
    keep_separate()
    product = log_pivots + 1
    fill(work, log_pivots, 0.0)
    fill(work, product, 1.0)
    row = A
    for i in range(p):
        substitute(work, A, i, i, row)
        subtract(work, row + i, row, row, i)
        # NaN is kept, so that a model that overflows has the evidence NaN.
        take_root(work, row + i, floors + i)
        multiply(work, product, row + i)
        divide(work, row + i, 1.0)
        if i % 8 == 7 or i == p - 1:
            # A logarithm per pivot would cost as much as the factorisation; a product of more than
            # eight could overflow.
            for lane in range(LANES):
                work[log_pivots, lane] += np.log(work[product, lane])
            fill(work, product, 1.0)
        row += i + 1


@njit(**PART)
def solve_backwards(work: Array, A: int, p: int, z: int) -> None:
    """Replace z by ``F⁻ᵀ z`` for the factor F of `factorise`."""
    keep_separate()
    for i in range(p - 1, -1, -1):
        row = A + i * (i + 1) // 2
        multiply(work, z + i, row + i)
        subtract_multiple(work, z, z + i, row, i)


@njit(**PART)
def invert(work: Array, A: int, p: int, J: int) -> None:
    """Write J = F⁻¹ column by column, for the factor F of `factorise`; column j is stored without
    its first j zeros.
    """
    keep_separate()
    for j in range(p):
        fill(work, J, 1.0)
        clear(work, J + 1, p - j - 1)
        substitute(work, A, p, p - j, J)
        J += p - j


@njit(**PART)
def subtract_squares(work: Array, J: int, u: int, p: int, total: int) -> None:
    """Subtract the packed ``JᵀJ + u uᵀ`` from ``total``, for J from `invert`."""
    keep_separate()
    first = J
    for a in range(p):
        other = J + a
        for c in range(a + 1):
            subtract(work, total + c, first, other, p - a)
            other += p - c - 1
        subtract_multiple(work, total, u + a, u, a + 1)
        total += a + 1
        first += p - a


@njit(**ENTRY)
def _invert_all(
    systems: Array,
    floor: float,
    inverses: Array,
    log_determinants: Array,
    tasks: NDArray[np.int64],
    work: Array,
) -> None:
    """Write the results of `invert_all`; ``work`` is scratch memory, and ``tasks`` are indices,
    padded to a multiple of eight.
    """
    T, n, _ = systems.shape
    n_packed = n * (n + 1) // 2
    J, zeros, floors, log_pivots = n_packed, 2 * n_packed, 2 * n_packed + n, 2 * n_packed + 2 * n
    clear(work, zeros, n)
    for i in range(n):
        fill(work, floors + i, floor)
    for start in range(0, T, LANES):
        o = 0
        for i in range(n):
            for j in range(i + 1):
                gather(work, o, systems, n * n, i * n + j, tasks, start)
                o += 1
        factorise(work, 0, n, floors, log_pivots)
        invert(work, 0, n, J)
        clear(work, 0, n_packed)
        subtract_squares(work, J, zeros, n, 0)
        for lane in range(min(LANES, T - start)):
            log_determinants[start + lane] = 2.0 * work[log_pivots, lane]
            o = 0
            for i in range(n):
                for j in range(i + 1):
                    inverses[start + lane, i, j] = inverses[start + lane, j, i] = -work[o, lane]
                    o += 1


def invert_all(systems: Array, floor: float) -> tuple[Array, Array]:
    """Return the inverses (T, n, n) and log determinants (T,) of systems K + floor I with positive
    semidefinite K.
    """
    T, n, _ = systems.shape
    inverses, log_determinants = np.empty((T, n, n)), np.empty(T)
    tasks = np.minimum(np.arange(-(-T // LANES) * LANES), T - 1)
    work = empty_workspace(n * (n + 1) + 2 * n + 2)
    _invert_all(np.ascontiguousarray(systems), floor, inverses, log_determinants, tasks, work)
    return inverses, log_determinants


#: Options of loops over rows.  Reassociation allows dot products to be vectorised; NaN and infinity
#: are still supported.
ROWS: dict[str, Any] = {**ENTRY, "fastmath": {"reassoc", "contract", "arcp", "nsz"}}

#: Rows per block of `second_moments`.
_TILE = 64


def second_moments(rows: Any, scales: Any, out: Any) -> None:
    """Call `_second_moments` with a workspace; allocating it in compiled code would increase the
    compile time.
    """
    (_, d), given = out[1].shape, rows[0].shape[1]
    # Each column of X is stored as a row, followed by the targets; rows of zeros pad their number
    # to a multiple of four.
    columns = np.zeros(((d + 4) // 4 * 4, _TILE))
    columns[given:d] = 1.0
    _second_moments(rows, scales, out, columns, np.empty((len(columns), len(columns))))


@njit(**ROWS)
def _second_moments(rows: Any, scales: Any, out: Any, columns: Array, products: Array) -> None:
    """Write XᵀX (T, d, d), Xᵀy (T, d) and yᵀy (T,), the arrays of ``out``, for inputs ``(x − shift)
    scale`` and targets scaled likewise.

    ``rows`` are X, y and the offsets, and ``scales`` those of `Scaling.change`.  A last column of
    ones is added if X has d − 1 columns.
    """
    X, y, offsets = rows
    shift, scale, target_shift, target_scale = scales
    gram, cross, square = out
    T, d = cross.shape
    _, given = X.shape
    for t in range(T):
        first, stop = offsets[t], offsets[t + 1]
        products[:] = 0.0
        while first < stop:
            m = min(stop - first, _TILE)
            for i in range(m):
                for j in range(given):
                    columns[j, i] = (X[first + i, j] - shift[j]) * scale[j]
                columns[d, i] = (y[first + i] - target_shift) * target_scale
            for a in range(d + 1):
                for c in range(0, a + 1, 4):
                    s0 = s1 = s2 = s3 = 0.0
                    for i in range(m):
                        u = columns[a, i]
                        s0 += u * columns[c, i]
                        s1 += u * columns[c + 1, i]
                        s2 += u * columns[c + 2, i]
                        s3 += u * columns[c + 3, i]
                    products[a, c] += s0
                    products[a, c + 1] += s1
                    products[a, c + 2] += s2
                    products[a, c + 3] += s3
            first += m
        for a in range(d):
            for c in range(a + 1):
                gram[t, a, c] = products[a, c]
                gram[t, c, a] = products[a, c]
            cross[t, a] = products[d, a]
        square[t] = products[d, d]
