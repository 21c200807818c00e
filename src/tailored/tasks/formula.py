"""The columns of a formula such as "score ~ hours * kind + (hours | school)", see
`tailored.tasks.parsing`.

Only products of factors are stored.  A new table is therefore encoded without formulaic.  A factor
in a model file cannot execute code, because `evaluate` accepts only the operators and functions
below.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record

Array = NDArray[np.float64]

#: Functions and operators in factors.  Python evaluates ^ after +, unlike R, so ^ is not among
#: them.
_NAMES = ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "sin", "cos", "tanh")
FUNCTIONS: dict[str, Any] = {"I": np.positive, **{name: getattr(np, name) for name in _NAMES}}
OPERATORS: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
OPERATORS |= {ast.Div: operator.truediv, ast.Pow: operator.pow}
#: Advice for expressions that contain this syntax of R.
ADVICE = {"offset": "For an exposure, pass exposure= instead", "^": "Write powers as I(x**2)"}
ADVICE |= {"factor(": "Write C(x) for categories"}


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
                        found = f"{factor} is not a finite number in row {int(np.argmax(bad))}"
                        raise ValueError(
                            f"formula: {found}. Use another function, or leave the row out."
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
        allowed = f"numeric columns, numbers, + - * / ** and {', '.join(FUNCTIONS)}"
        advice = next((text for part, text in ADVICE.items() if part in factor), "Make it a column")
        raise ValueError(
            f"formula: {ast.unparse(node)!r} is not supported. Allowed are {allowed}. {advice}."
        )

    with np.errstate(all="ignore"):
        return value(ast.parse(factor.replace("np.", ""), mode="eval").body)
