"""Small changes of a module that its tests should notice: what they are and where they stand.

A mutant is one expression or statement of the source replaced by another, in its place, so that every other line and
column stays. Text is left alone: docstrings, messages, annotations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
#: Of these fields of a node nothing is mutated.
LEFT_ALONE = {
    "annotation",
    "returns",
    "decorator_list",
    "bases",
    "keywords_of_class",
    "type_params",
    "exc",
    "msg",
}


class Mutant(NamedTuple):
    """One change: a file, the offsets of what is replaced in its bytes, and the new text."""

    path: str
    kind: str
    line: int
    start: int
    stop: int
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.stop :]

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.start}:{self.kind}"


def mutants(root: Path, path: str) -> list[Mutant]:
    """All mutants of one file, in the order of the source."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, kind, new in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
        if source[start:stop].decode() != text.strip("()"):
            found.append(Mutant(path, kind, node.lineno, start, stop, text))
    return sorted(set(found), key=lambda mutant: (mutant.start, mutant.stop, mutant.kind))


def is_compiled(path: Path, line: int) -> bool:
    """Whether compiled functions contain a line: in them, among the constants of the module, or where they are generated."""
    source = path.read_bytes()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (
            node.end_lineno or line
        ):
            return b"llvmlite" in source or any(
                "njit" in ast.unparse(d) for d in node.decorator_list
            )
    return True


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    for node in _walk(tree):
        yield from ((node, kind, new) for kind, new in _of_node(node))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in LEFT_ALONE or (field == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _walk(child)


def _of_node(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            ops = [*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]]
            yield f"comparison {i}", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _of_types(node):
        yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield "sign", node.operand
    elif isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", ast.BoolOp(op, node.values)
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node)
    elif isinstance(node, (ast.If, ast.IfExp)):
        pass  # their tests are nodes of their own
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)


def _of_types(node: ast.BinOp) -> bool:
    """``int | None`` and the like, which stand for types outside annotations too."""
    return isinstance(node.op, ast.BitOr) and any(
        isinstance(side, ast.Constant)
        or (isinstance(side, ast.Name) and side.id in {"int", "float", "str", "bytes"})
        or (
            isinstance(side, (ast.Name, ast.Attribute))
            and ast.unparse(side).split(".")[-1][0].isupper()
        )
        for side in (node.left, node.right)
    )


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield "constant", ast.Constant(2.0 * node.value if node.value else 1.0)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.AugAssign):
        if type(node.op) in OPERATORS:
            yield "operator", ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        yield "removed", ast.Pass()
    elif isinstance(node, ast.Assign):
        if all(isinstance(target, (ast.Subscript, ast.Attribute)) for target in node.targets):
            yield "removed", ast.Pass()
    elif isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Constant):
            yield "removed", ast.Pass()
    elif isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
        yield "removed", ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and node.col_offset > 8:
        yield "removed", ast.Pass()  # one inside a branch: the function goes on
