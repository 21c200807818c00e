"""Small files in the official layouts."""

from __future__ import annotations

import io
import random
import zipfile
from typing import Any

import numpy as np
import scipy.io
import xlwt


def lenk_file(people: int = 3, **changes: Any) -> bytes:
    rng = np.random.default_rng(0)
    parts = {}
    for name, rows in (("Traindata", 16), ("Testdata", 4)):
        part = rng.choice([-1, 1], size=(people * rows, 15)).astype(np.int16)
        part[:, 0], part[:, -1] = 1, rng.integers(0, 11, size=len(part))
        parts[name] = part
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {k: v for k, v in (parts | changes).items() if v is not None})
    return buffer.getvalue()


# Movies 30 and 10 have three ratings, 20 two and 40 one; users 5 and 9 gave one rating each.
RATINGS = [
    (7, 30, 4), (2, 40, 1), (2, 10, 5), (7, 10, 3), (2, 30, 2), (5, 30, 1), (2, 20, 4), (7, 20, 5),
    (9, 10, 2),
]  # fmt: skip
USERS = {
    2: (53, "F", "other"),
    5: (33, "F", "writer"),
    7: (57, "M", "administrator"),
    9: (29, "M", "student"),
}
TITLES = {
    10: "Misérables, Les (1995)",
    20: "Kolya (1996)",
    30: "Chasing Amy (1997)",
    40: "Chasing Amy (1997)",
}


def movielens_files(ratings: list[tuple[int, int, int]] = RATINGS, newline: str = "\n") -> dict[str, bytes]:
    def text(lines: list[str]) -> bytes:
        return "".join(line + newline for line in lines).encode("latin-1")

    return {
        "u.data": text([f"{u}\t{i}\t{r}\t87{k}" for k, (u, i, r) in enumerate(ratings)]),
        "u.user": text([f"{u}|{age}|{sex}|{job}|T8H1N" for u, (age, sex, job) in USERS.items()]),
        "u.item": text([f"{i}|{title}|01-Jan-1995||http://x|0|1" for i, title in TITLES.items()]),
    }


def zipped(files: dict[str, bytes], folder: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(folder + name, content)
    return buffer.getvalue()


def jester_table(n_users: int = 6) -> list[list[float]]:
    """Joke j (from 1) is rated by the users whose number from 0 is at least (j * 7) % n_users."""
    draw = random.Random(0)
    rows = []
    for user in range(n_users):
        ratings = [
            round(draw.uniform(-10, 10), 2) if user >= (j * 7) % n_users else 99.0 for j in range(1, 101)
        ]
        rows.append([float(sum(r != 99 for r in ratings)), *ratings])
    return rows


def as_xls(rows: list[list[Any]]) -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("jester-data-1-new")
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            sheet.write(i, j, value)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def as_csv(rows: list[list[Any]]) -> bytes:
    return "".join(",".join(f"{v:g}" if v != "" else "" for v in row) + "\n" for row in rows).encode()


OFFICIAL = {
    "lenk": lambda: lenk_file(),
    "movielens": lambda: zipped(movielens_files(), "ml-100k/"),
    "jester": lambda: zipped({"jester-data-1.xls": as_xls(jester_table())}),
}
SMALL: dict[str, dict[str, Any]] = {
    "lenk": {},
    "movielens": {"n_items": 3, "min_ratings": 2},
    "jester": {"n_items": 8, "min_ratings": 3},
}
