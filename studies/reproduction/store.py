"""Results on disk: one small file per finished cell, written whole or not at all.

::

    RESULTS/
        results.csv.gz          the tidy table (see `table`)
        manifest.json           configurations, library versions, wall times
        <experiment>/
            config.json         what the cells depend on; a run with another one is refused
            cells/*.npz         finished cells
            representation.npz  what the figures show of the learned τ, H and C
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files import ResultsError, make_folder, write_atomically
from .cells import Cell, CellResult

FORMAT = 1
CONFIG_FILE = "config.json"
REPRESENTATION_FILE = "representation.npz"


class DamagedCell(ResultsError):
    """A cell's file cannot be read, or is not what its name says."""


class ExperimentStore:
    """The finished cells of one experiment under one configuration.

    Parameters
    ----------
    folder : Path
        Of this experiment, inside the results folder.
    identity : mapping
        Everything the numbers depend on, as plain values.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self.identity = json.loads(
            json.dumps(identity)
        )  # tuples become lists, as they will on disk
        self.digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    @property
    def cells_folder(self) -> Path:
        return self.folder / "cells"

    def path(self, cell: Cell) -> Path:
        return self.cells_folder / f"{cell}.npz"

    def open(self, *, resume: bool) -> None:
        """Make the folder, or check that an existing one may be continued."""
        config_file = self.folder / CONFIG_FILE
        if config_file.exists():
            self._refuse_difference(config_file)
            found = sum(1 for _ in self.cells_folder.glob("*.npz"))
            if found and not resume:
                raise ResultsError(
                    f"{self.folder} already holds {found} finished cells of this configuration: "
                    "add --resume to keep them and compute the rest, or choose another --out"
                )
        make_folder(self.cells_folder)
        if not config_file.exists():
            content = {"format": FORMAT, "identity": self.identity}
            write_atomically(config_file, (json.dumps(content, indent=1) + "\n").encode())

    def _refuse_difference(self, config_file: Path) -> None:
        kept, version = _stored(config_file)
        lines = list(differences(kept, self.identity))
        if version != FORMAT:
            lines.insert(0, f"format of the folder: {version} there, {FORMAT} now")
        if lines:
            raise ResultsError(
                f"{self.folder} holds results of another configuration, and they are not mixed:\n  "
                + "\n  ".join(lines)
                + "\nChoose another --out, or repeat the configuration of that folder"
            )

    def save(self, cell: Cell, result: CellResult, seconds: float) -> None:
        """Store a finished cell."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {f"array_{name}": value for name, value in result.arrays.items()}
        np.savez(
            buffer,
            digest=np.array(self.digest),
            cell=np.array(str(cell)),
            test=result.test,
            validation=np.array(result.validation),
            seconds=np.array(seconds),
            **arrays,
        )
        write_atomically(self.path(cell), buffer.getvalue())

    def load(self, cell: Cell) -> tuple[CellResult, float]:
        """A finished cell and the seconds it took; `DamagedCell` names the file that is not one."""
        path = self.path(cell)
        try:
            # Read whole: every member's checksum is verified, and nothing is unpickled.
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                values = {name: stored[name] for name in stored.files}
            if str(values["digest"]) != self.digest or str(values["cell"]) != str(cell):
                raise ValueError("it belongs to another cell or configuration")
            arrays = {
                name[6:]: value for name, value in values.items() if name.startswith("array_")
            }
            result = CellResult(values["test"], float(values["validation"]), arrays)
            return result, float(values["seconds"])
        except Exception as error:
            # A garbled archive meets zipfile, zlib, struct, tokenize and the limits of memory.
            raise DamagedCell(f"{path} is damaged ({error})") from error

    def missing(self, cells: Iterable[Cell]) -> tuple[list[Cell], list[str]]:
        """Cells to compute, and a message for each stored one that turned out damaged."""
        wanted, messages = [], []
        for cell in cells:
            if not self.path(cell).exists():
                wanted.append(cell)
                continue
            try:
                self.load(cell)
            except DamagedCell as error:
                wanted.append(cell)
                messages.append(f"{error}; it is computed again")
        return wanted, messages


def _stored(config_file: Path) -> tuple[dict[str, Any], int]:
    """The identity that a folder was made under, and its format."""
    try:
        stored = json.loads(config_file.read_bytes())
        return dict(stored["identity"]), stored["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultsError(
            f"{config_file} is damaged ({error}): without it nobody knows what the cells beside it "
            "are. Choose another --out, or remove the folder"
        ) from error


def differences(kept: Any, new: Any, key: str = "") -> Iterable[str]:
    """Say where two nested configurations differ, one line per key."""
    if isinstance(kept, dict) and isinstance(new, dict):
        for name in [*kept, *(name for name in new if name not in kept)]:
            inner = f"{key}.{name}" if key else name
            yield from differences(kept.get(name, "nothing"), new.get(name, "nothing"), inner)
    elif kept != new:
        yield f"{key}: {kept} there, {new} now"
