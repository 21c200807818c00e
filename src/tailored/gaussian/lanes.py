"""Eight tasks at once: small Cholesky factorisations in which a vector register holds one number of eight tasks.

A 20 × 20 system is too small for the vector units of a processor to be of use within it; side by side, eight of them keep
those busy from the first multiplication to the last.  A *room* is an array (m, 8) of *rows of lanes*: number i of task l
stands in ``[i, l]``.  All that a pass writes down is in one room, and a matrix is the row where it begins.  Compilers do not
find vectors of tasks by themselves, so that the inner loops are written as vector instructions of LLVM, which turns them
into those of the processor at hand; it is also several times faster to compile than loops over lanes.

Symmetric and triangular matrices are packed: (i, j), j ≤ i, stands at ``i (i + 1) / 2 + j``.
"""

from __future__ import annotations

from collections.abc import Callable
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
_NUMBER = types.intp
#: Callers pass all arguments but the first, which no type says.
_inline: Any = intrinsic
#: Of functions that compiled code calls: nothing in them is for Numba to rewrite.
_PLAIN: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_rewrites": True,
    "no_cfunc_wrapper": True,
}
#: Of those that only compiled ones call: they are kept in what these are compiled to, which is faster than twice.
PART: dict[str, Any] = {**_PLAIN, "no_cpython_wrapper": True}
#: Of those that Python calls.
ENTRY: dict[str, Any] = {**_PLAIN, "cache": True}


def empty_room(n_rows: int) -> Array:
    """A room of this many rows, none of which lies in two lines of the processor's cache."""
    line = LANES * 8
    whole = np.empty((n_rows + 1) * LANES)
    first = -whole.__array_interface__["data"][0] % line // 8
    return whole[first : first + n_rows * LANES].reshape(n_rows, LANES)


def _at(context: Any, builder: Any, kind: Any, array: Any, position: Any, unit: Any = _ROW) -> Any:
    """Pointer to a row of lanes, or to another unit."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(builder.bitcast(data, unit.as_pointer()), [position])


def _subtract_products(n_outputs: int) -> Any:
    """Code for ``room[o + m] -= Σ_i room[u + i] room[v_m + i]`` over i < n, for m < n_outputs, each in its own register."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room, o, u, *starts, n = args
        zero, one = ir.Constant(n.type, 0), ir.Constant(n.type, 1)
        target, left, *right = (_at(context, builder, signature.args[0], room, i) for i in (o, u, *starts))
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
def subtract(typing: Any, room: Any, o: Any, u: Any, v: Any, n: Any) -> Any:
    """``room[o] -= Σ_{i<n} room[u + i] room[v + i]``."""
    return types.void(room, *(_NUMBER,) * 4), _subtract_products(1)


@_inline
def subtract_four(typing: Any, room: Any, o: Any, u: Any, v0: Any, v1: Any, v2: Any, v3: Any, n: Any) -> Any:
    """``room[o + m] -= Σ_{i<n} room[u + i] room[v_m + i]`` for four m: what is at u is loaded once for all of them."""
    return types.void(room, *(_NUMBER,) * 7), _subtract_products(4)


def _rowwise(compute: Callable[[Any, Any, Any], Any]) -> Any:
    """Code for ``room[o] = compute(builder, room[o], room[u])``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room, *positions = args
        places = [_at(context, builder, signature.args[0], room, i) for i in positions]
        rows = [builder.load(place, align=8) for place in places]
        builder.store(compute(builder, *rows), places[0], align=8)
        return context.get_dummy_value()

    return generate


@_inline
def multiply(typing: Any, room: Any, o: Any, u: Any) -> Any:
    """``room[o] *= room[u]``."""
    return types.void(room, _NUMBER, _NUMBER), _rowwise(lambda builder, a, b: builder.fmul(a, b))


@_inline
def copy(typing: Any, room: Any, o: Any, u: Any) -> Any:
    """``room[o] = room[u]``."""
    return types.void(room, _NUMBER, _NUMBER), _rowwise(lambda builder, a, b: b)


def _broadcast(builder: Any, value: Any) -> Any:
    row = builder.insert_element(ir.Constant(_ROW, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(row, row, zeros)


@_inline
def fill(typing: Any, room: Any, o: Any, value: Any) -> Any:
    """``room[o] = value``, a number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _at(context, builder, signature.args[0], *args[:2])
        builder.store(_broadcast(builder, args[2]), place, align=8)
        return context.get_dummy_value()

    return types.void(room, _NUMBER, types.float64), generate


@_inline
def add(typing: Any, room: Any, o: Any, value: Any) -> Any:
    """``room[o] += value``, a number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _at(context, builder, signature.args[0], *args[:2])
        row = builder.load(place, align=8)
        builder.store(builder.fadd(row, _broadcast(builder, args[2])), place, align=8)
        return context.get_dummy_value()

    return types.void(room, _NUMBER, types.float64), generate


@_inline
def gather(
    typing: Any, room: Any, o: Any, array: Any, stride: Any, offset: Any, tasks: Any, first: Any
) -> Any:
    """``room[o, l] = array.flat[stride * tasks.flat[first + l] + offset]``, both in C order."""
    if array.layout != "C" or tasks.layout != "C":
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room, o, array, stride, offset, tasks, first = args
        start = _at(context, builder, signature.args[2], array, offset, ir.DoubleType())
        who = _at(context, builder, signature.args[5], tasks, first, stride.type)
        row = ir.Constant(_ROW, ir.Undefined)
        for lane in range(LANES):
            task = builder.load(builder.gep(who, [ir.Constant(stride.type, lane)]))
            value = builder.load(builder.gep(start, [builder.mul(task, stride)]))
            row = builder.insert_element(row, value, ir.IntType(32)(lane))
        builder.store(row, _at(context, builder, signature.args[0], room, o), align=8)
        return context.get_dummy_value()

    return types.void(room, _NUMBER, array, _NUMBER, _NUMBER, tasks, _NUMBER), generate


@_inline
def apart(typing: Any) -> Any:
    """Keeps the function that calls it from being copied into its callers, and its loops from being unrolled.

    The compiler would take seconds longer, and the inner loops are vector instructions already.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for attribute in ("noinline", "optsize"):
            builder.function.attributes.add(attribute)
        return context.get_dummy_value()

    return types.void(), generate


@njit(**PART)
def clear(room: Array, o: int, n: int) -> None:
    """n rows of zeros."""
    apart()
    for i in range(o, o + n):
        fill(room, i, 0.0)


@njit(**PART)
def subtract_multiple(room: Array, o: int, u: int, v: int, n: int) -> None:
    """``room[o + i] -= room[u] room[v + i]`` for i < n."""
    apart()
    for i in range(n):
        subtract(room, o + i, u, v + i, 1)


@njit(**PART)
def subtract_each(room: Array, o: int, m: int, u: int, v: int, n: int) -> None:
    """``room[o + c] -= Σ_{i<n} room[u + i] room[v + c n + i]`` for c < m."""
    apart()
    c = 0
    while c + 4 <= m:
        subtract_four(room, o + c, u, v, v + n, v + 2 * n, v + 3 * n, n)
        c += 4
        v += 4 * n
    while c < m:
        subtract(room, o + c, u, v, n)
        c += 1
        v += n


@njit(**PART)
def substitute(room: Array, A: int, p: int, m: int, x: int) -> None:
    """Forward substitution, x = F⁻¹ x, for the last m rows and columns of the factors F (p, p) of `factorise` at A."""
    apart()
    begin = p - m
    row = A + begin * (begin + 3) // 2
    i = 0
    while i + 4 <= m:
        o, r1 = x + i, row + begin + i + 1
        r2 = r1 + begin + i + 2
        r3 = r2 + begin + i + 3
        subtract_four(room, o, x, row, r1, r2, r3, i)
        multiply(room, o, row + i)
        subtract(room, o + 1, o, r1 + i, 1)
        multiply(room, o + 1, r1 + i + 1)
        subtract(room, o + 2, o, r2 + i, 2)
        multiply(room, o + 2, r2 + i + 2)
        subtract(room, o + 3, o, r3 + i, 3)
        multiply(room, o + 3, r3 + i + 3)
        i += 4
        row = r3 + begin + i
    while i < m:
        subtract(room, x + i, x, row, i)
        multiply(room, x + i, row + i)
        i += 1
        row += begin + i


@njit(**PART)
def factorise(room: Array, A: int, p: int, log_pivots: int) -> None:
    """Cholesky factors F of systems, in place, reciprocals on their diagonals; log |F| at ``log_pivots``, then a free row."""
    apart()
    product = log_pivots + 1
    fill(room, log_pivots, 0.0)
    fill(room, product, 1.0)
    row = A
    for i in range(p):
        substitute(room, A, i, i, row)
        subtract(room, row + i, row, row, i)
        for lane in range(LANES):
            pivot = np.sqrt(room[row + i, lane])
            room[product, lane] *= pivot
            room[row + i, lane] = 1.0 / pivot
        if i % 8 == 7 or i == p - 1:
            # A logarithm for each pivot would cost as much as the factors; more than eight could overflow.
            for lane in range(LANES):
                room[log_pivots, lane] += np.log(room[product, lane])
            fill(room, product, 1.0)
        row += i + 1


@njit(**PART)
def solve_backwards(room: Array, A: int, p: int, z: int) -> None:
    """z becomes ``F⁻ᵀ z`` for the factors F of `factorise`."""
    apart()
    for i in range(p - 1, -1, -1):
        row = A + i * (i + 1) // 2
        multiply(room, z + i, row + i)
        subtract_multiple(room, z, z + i, row, i)


@njit(**PART)
def invert(room: Array, A: int, p: int, J: int) -> None:
    """J = F⁻¹ for the factors F of `factorise`; column j of J, its rows j to p − 1, follows column j − 1."""
    apart()
    for j in range(p):
        fill(room, J, 1.0)
        clear(room, J + 1, p - j - 1)
        substitute(room, A, p, p - j, J)
        J += p - j


@njit(**PART)
def subtract_squares(room: Array, J: int, u: int, p: int, total: int) -> None:
    """``total -= JᵀJ + u uᵀ``, packed, J as from `invert`."""
    apart()
    first = J
    for a in range(p):
        c, other = 0, J + a
        while c + 4 <= a + 1:
            o1 = other + p - c - 1
            o2 = o1 + p - c - 2
            o3 = o2 + p - c - 3
            subtract_four(room, total + c, first, other, o1, o2, o3, p - a)
            c += 4
            other = o3 + p - c
        while c <= a:
            subtract(room, total + c, first, other, p - a)
            c += 1
            other += p - c
        subtract_multiple(room, total, u + a, u, a + 1)
        total += a + 1
        first += p - a


@njit(**PART)
def across(room: Array, o: int, sign: float, k: int, sums: Array) -> None:
    """``sums[k]``: totals over lanes, times a sign."""
    apart()
    for i in range(sums.shape[1]):
        total = 0.0
        for lane in range(LANES):
            total += room[o + i, lane]
        sums[k, i] = sign * total


@njit(**ENTRY)
def _invert_all(
    systems: Array, inverses: Array, log_determinants: Array, tasks: NDArray[np.int64], room: Array
) -> None:
    """`invert_all` in a room of 2 n (n + 1) / 2 + n + 2 rows, for tasks in groups of eight."""
    T, n, _ = systems.shape
    n_packed = n * (n + 1) // 2
    J, nothing, log_pivots = n_packed, 2 * n_packed, 2 * n_packed + n
    clear(room, nothing, n)
    for start in range(0, T, LANES):
        o = 0
        for i in range(n):
            for j in range(i + 1):
                gather(room, o, systems, n * n, i * n + j, tasks, start)
                o += 1
        factorise(room, 0, n, log_pivots)
        invert(room, 0, n, J)
        clear(room, 0, n_packed)
        subtract_squares(room, J, nothing, n, 0)
        for lane in range(min(LANES, T - start)):
            log_determinants[start + lane] = 2.0 * room[log_pivots, lane]
            o = 0
            for i in range(n):
                for j in range(i + 1):
                    inverses[start + lane, i, j] = inverses[start + lane, j, i] = -room[o, lane]
                    o += 1


def invert_all(systems: Array, inverses: Array, log_determinants: Array) -> None:
    """Inverses of positive definite systems (T, n, n), written into an array of the same shape, and their log |·| (T,)."""
    T, n, _ = systems.shape
    tasks = np.minimum(np.arange(-(-T // LANES) * LANES), T - 1)
    _invert_all(systems, inverses, log_determinants, tasks, empty_room(n * (n + 1) + n + 2))
