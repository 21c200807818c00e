"""Formulas such as "score ~ hours * kind + (hours | school)".

formulaic parses the terms and decides which indicators of categories are redundant. It does not
evaluate expressions. Only products of factors are stored in a `Formula`, so a new table is encoded
without formulaic. A factor in a model file cannot execute code, because `evaluate` accepts only the
operators and functions below.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record
from .._utils.validation import name_some

if TYPE_CHECKING:
    from .encoding import ColumnEncoding, Encoding, TaskColumns

Array = NDArray[np.float64]

#: Functions and operators in factors.  Python evaluates ^ after +, unlike R, so ^ is not among
#: them.
FUNCTIONS: dict[str, Any] = {
    "I": np.positive,
    **{name: getattr(np, name) for name in ("log", "log1p", "log2", "log10", "exp", "expm1")},
    **{name: getattr(np, name) for name in ("sqrt", "abs", "sin", "cos", "tanh")},
}
OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True)
class Formula(Record):
    """The columns of a formula, each of which is a product of factors, and its random effects.

    A factor is a column of the table ("hours"), an indicator ("kind=b") or an expression
    ("np.log(hours)").
    """

    text: str
    columns: tuple[tuple[str, ...], ...]  # the factors of each column
    varying: tuple[str, ...]  # names of the columns with random slopes
    covariance: str  # "full" or "diagonal"
    has_intercept: bool
    has_random_intercept: bool

    @property
    def names(self) -> list[str]:
        return [":".join(factors) for factors in self.columns]

    def design(self, X: Array, names: Sequence[str]) -> Array:
        """Return the columns of the formula (n, k), given encoded columns X of a table and their
        names.
        """
        values, out = dict(zip(names, X.T, strict=True)), np.ones((len(X), len(self.columns)))
        for j, factors in enumerate(self.columns):
            for factor in factors:
                if factor not in values:
                    values[factor] = evaluate(factor, values)
                    if (bad := np.isfinite(X).all(axis=1) & ~np.isfinite(values[factor])).any():
                        raise ValueError(
                            f"formula: {factor} is not a finite number in row "
                            f"{int(np.argmax(bad))}. Use another function, or leave the row out."
                        )
                out[:, j] *= values[factor]
        return out


def evaluate(factor: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression of columns and numbers; only `OPERATORS` and `FUNCTIONS`
    are allowed.
    """

    def value(node: Any) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number):
                return np.float64(number)  # powers of Python integers may be too large to compute
            case ast.Name() | ast.Attribute() if (name := ast.unparse(node)) in values:
                return values[name]  # the name may have dots, as in R
            case ast.UnaryOp(ast.USub(), a):
                return -value(a)
            case ast.BinOp(a, op, b) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(a), value(b))
            case ast.Call(ast.Name(name), [a], []) if name in FUNCTIONS:
                return FUNCTIONS[name](value(a))
        raise ValueError(
            f"formula: {ast.unparse(node)!r} is not supported. Allowed are numeric columns, "
            f"numbers, + - * / ** and {', '.join(FUNCTIONS)}. Write C(x) for categories, I(x**2) "
            "for powers, and pass exposure= instead of an offset. Make anything else a column."
        )

    with np.errstate(all="ignore"):
        return value(ast.parse(factor.replace("np.", ""), mode="eval").body)


#: Matches (columns | task) and (columns || task); the columns may contain parentheses, nested at
#: most twice.
_BAR = re.compile(r"\(((?:[^()|]|\((?:[^()]|\([^()]*\))*\))*)\|(\|?)([^()|]*)\)")
#: Placeholder for a term of `_BAR` among the fixed effects.
_PLACE = "_random_effects"


class ParsedFormula(NamedTuple):
    """The parts of a formula, not yet applied to a table; terms are objects of formulaic."""

    text: str
    target: str
    task: TaskColumns
    fixed: Any
    random: list[Any]
    is_diagonal: bool
    columns: list[str]  # columns of the table, without the task and the target
    categorical: set[str]  # columns inside C()

    def apply(self, encoding: Encoding, X: Array) -> tuple[Encoding, Array]:
        """Return the encoding with the formula, and the columns of the formula; ``X`` are the
        encoded columns.
        """
        if encoding.levels:  # fixed effects are not shrunk, however many categories there are
            encoding, X = encoding.with_indicators(X)
        fixed, *random = (
            tuple(_columns(terms, encoding.features)) for terms in (self.fixed, *self.random)
        )
        formula = Formula(
            self.text,
            fixed,
            tuple(":".join(factors) for part in random for factors in part),
            "diagonal" if self.is_diagonal else "full",
            "1" in self.fixed,
            any("1" in terms for terms in self.random),
        )
        if others := set(formula.varying) - set(formula.names):
            _refuse(
                self.text,
                f"the fixed effects lack columns that vary: {name_some(sorted(others))}. Add them; "
                "for categories k, write (k | g) instead of (0 + k | g)",
            )
        encoding = replace(encoding, formula=formula)
        return encoding, encoding.design(X)


def parse(text: str) -> ParsedFormula:
    """Return the parts of a formula; raise ValueError for terms that are not supported."""
    if not isinstance(text, str) or text.count("~") != 1:
        raise ValueError(f"formula: expected a string such as 'y ~ x + (x | g)', got {text!r}.")
    left, right = text.split("~")
    target, bars = left.strip().strip("`"), _BAR.findall(right)
    if not target or re.search(r"[(+*/]", target):
        _refuse(
            text,
            f"the target {target!r} is not a column. Add the target to the table; for successes "
            "and failures, use two rows with frequency_weight",
        )
    if not bars or "|" in _BAR.sub("", right):
        _refuse(
            text,
            "the task and the columns that vary must be in parentheses, as in (1 | g) or (x | g)",
        )
    group = _group(text, [group.strip() for *_, group in bars])
    fixed, *random = _read(
        text, [_BAR.sub(f" {_PLACE} ", right), *(columns for columns, *_ in bars)]
    )
    if [str(term) for term in fixed if _PLACE in str(term)] != [_PLACE]:
        _refuse(text, f"the term of {group!r} must be added with +")
    if not all(random) or (len(bars) > 1 and max(map(len, random)) > 1):
        _refuse(text, f"write one term (x | {group}) with all columns that vary, or (1 | {group})")
    if "1" not in fixed and any("1" in terms for terms in random):
        _refuse(
            text,
            "a random intercept needs a fixed one. Remove '0 +' or '- 1', or write (0 + x | g)",
        )
    plain, categorical = _used(text, [term for terms in (fixed, *random) for term in terms])
    if both := plain & categorical:
        _refuse(
            text,
            f"with and without C(): {name_some(sorted(both))}. Use a copy of the column in C()",
        )
    names = tuple(name.strip().strip("`") for name in group.split(":"))
    return ParsedFormula(
        text,
        target,
        names if len(names) > 1 else names[0],
        fixed,
        random,
        len(bars) > 1 or bool(bars[0][1]),
        sorted(plain | categorical),
        categorical,
    )


def _group(text: str, groups: Sequence[str]) -> str:
    """Return the only group of a formula; raise ValueError for crossed and nested groups."""
    group, *others = dict.fromkeys(groups)
    if others:
        _refuse(
            text,
            f"there is more than one group: {group!r} and {others[0]!r}. For crossed groups, use "
            f"TaskSet.from_frame(..., task={group!r}), with {others[0]!r} as a column of strings",
        )
    if "/" in group:
        outer, pair = group.split("/")[0].strip(), group.replace("/", ":")
        _refuse(
            text,
            f"{group!r} is nested. Write {outer} + (1 | {pair}); effects of {outer} are then fixed",
        )
    return group


def _read(text: str, parts: Sequence[str]) -> list[Any]:
    """Return the terms of each part of a formula."""
    try:
        from formulaic import Formula as Terms
        from formulaic.errors import FormulaicError
    except ImportError as error:
        raise ImportError(
            "formula: formulaic is not installed. Install it with python -m pip install "
            "'.[formula]' in a checkout."
        ) from error
    try:
        return [Terms(part) for part in parts]
    except (FormulaicError, SyntaxError) as error:
        _refuse(
            text, f"it cannot be read ({str(error).splitlines()[0]}). Write C(x) for categories"
        )


def _used(text: str, terms: Sequence[Any]) -> tuple[set[str], set[str]]:
    """Return the columns that the terms use without and with C(); set ``eval_method`` of every
    factor to "lookup".
    """
    plain: set[str] = set()
    categorical: set[str] = set()
    used = [(term, factor) for term in terms if str(term) != "1" for factor in term.factors]
    for term, factor in used:
        kind, name = factor.eval_method.value, _column(factor.expr)
        if kind == "literal":
            _refuse(
                text, f"{str(term)!r} contains a number. Leave it out, or write I() for arithmetic"
            )
        elif kind == "lookup":
            plain.add(name)
        elif name != factor.expr:
            categorical.add(name)
        else:
            # A name may have dots.
            names = {*re.findall(r"(?<![\w.])[^\W\d][\w.]*", name.replace("np.", ""))}
            names -= {*FUNCTIONS}
            try:
                evaluate(name, dict.fromkeys(names, 1.0))
            except SyntaxError:  # log(`a b`)
                _refuse(text, f"{name!r} cannot be read. Make it a column")
            plain |= names
    for _, factor in used:  # after the loop, because terms such as x and x:z share the factor of x
        factor.eval_method = "lookup"
    return plain - {_PLACE}, categorical


def _column(expression: str) -> str:
    """Return x for C(x), and other expressions unchanged."""
    return re.sub(r"^C\(([\w.]+)\)$", r"\1", expression)


def _columns(terms: Any, features: Sequence[ColumnEncoding]) -> Iterator[tuple[str, ...]]:
    """Yield the factors of each column of these terms, without redundant indicators."""
    import pandas

    categories = {
        column.name: column.categories for column in features if column.kind == "categorical"
    }
    row: dict[str, Any] = {"1": [1.0]}
    for factor in (factor for term in terms for factor in term.factors):
        known = categories.get(_column(factor.expr))
        row[factor.expr] = [1.0] if known is None else pandas.Categorical(known[:1], known)
    for part in terms.get_model_matrix(pandas.DataFrame(row)).model_spec.structure:
        for scoped in part.scoped_terms:
            choices = []
            for factor in scoped.factors:
                name = _column(factor.factor.expr)
                known = categories[name][bool(factor.reduced) :] if name in categories else None
                choices.append(
                    [name] if known is None else [f"{name}={category}" for category in known]
                )
            for column in product(*choices[::-1]):  # the first factor varies fastest, as in R
                if column and column != (_PLACE,):
                    yield column[::-1]


def _refuse(text: str, reason: str) -> NoReturn:
    raise ValueError(f"formula: {' '.join(text.split())!r}: {reason}.")
