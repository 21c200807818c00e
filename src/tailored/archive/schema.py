"""The fields of one class in a file, and what they have to say to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .kinds import Kind, Wrong, check_fields, is_node, need
from .tree import Node, Regressor

#: A statement about the fields of one object and their places.
Agreement = Callable[[Mapping[str, Any], str], None]


@dataclass(frozen=True)
class Schema:
    """What an object in a file is made of.

    Attributes
    ----------
    fields, optional : dict
        Kinds of the fields that it must have, and of those that it may have; others are refused.
    agree : callable, optional
        Raises `Wrong` where fields that are right by themselves do not fit together.
    """

    fields: Mapping[str, Kind] = field(default_factory=dict)
    optional: Mapping[str, Kind] = field(default_factory=dict)
    agree: Agreement | None = None


#: By the names of the classes; filled by `tailored.archive.schemas`.
SCHEMAS: dict[str, Schema] = {}


def node(*names: str) -> Kind:
    """An object of one of these classes."""

    def check(value: Any, place: str) -> None:
        need(is_node(value, *names), place, f"must be {' or '.join(names)}, is {_what(value)}")
        check_node(value, place)

    return check


def check_node(value: Node, place: str) -> None:
    """An object of any known class against its schema."""
    schema = SCHEMAS.get(value.kind)
    if schema is None:
        raise Wrong(place, f"names {value.kind[:60]!r}, which is nothing that tailored stores")
    check_fields(value.parts, place, schema.fields, schema.optional)
    if schema.agree is not None:
        schema.agree(value.parts, place)


def _what(value: Any) -> str:
    if type(value) is Node:
        return value.kind[:60]
    return "a regressor" if type(value) is Regressor else f"of type {type(value).__name__}"
