"""Frozen records that remember what they computed from their fields, and are copied and pickled without it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Record:
    """Base of frozen dataclasses with cached properties: what was computed is no part of what they are."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # type: ignore[arg-type]
