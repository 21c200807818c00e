"""Model files, damaged and forged: their bytes, containers, fields and arrays."""

import json
import struct
import warnings
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np

from tailored.archive import container
from tailored.archive.tree import npy_header

FILES = Path(__file__).parents[1] / "model_files"


class Corpus:
    """The golden files, in bytes and in members."""

    def __init__(self, extra=()):
        paths = [*sorted(FILES.glob("format-*/*.tailored")), *extra]
        self.files = [path.read_bytes() for path in paths]
        self.members = [
            {name: bytes(body) for name, body in container.unpack(content).items()} for content in self.files
        ]

    def draw(self, rng):
        """Bytes of one, its members with the tree read, and the members of another."""
        i = rng.randrange(len(self.files))
        return self.files[i], dict(self.members[i]), self.members[rng.randrange(len(self.files))]


def sealed(members):
    """A file with these members and a right checksum."""
    return b"".join(container.pack(members))


def resealed(content):
    """Bytes of a file with a right checksum at their end, whatever they are."""
    import hashlib

    body = content[: -container.DIGEST]
    return body + hashlib.sha256(body).hexdigest().encode()


# --- bytes


def flip(rng, content):
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def truncate(rng, content):
    n = rng.randrange(len(content))
    return rng.choice((content[:n], content[n:]))


def insert(rng, content):
    n = rng.randrange(len(content))
    return content[:n] + rng.randbytes(rng.choice((1, 2, 16, 1000))) + content[n:]


def splice(rng, content, other):
    a, b = rng.randrange(len(content)), rng.randrange(len(other))
    return content[:a] + other[b : b + rng.randrange(1, 4000)] + content[rng.randrange(len(content)) :]


def overwrite(rng, content):
    n, size = rng.randrange(len(content)), rng.choice((1, 2, 4, 8, 100))
    filler = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return content[:n] + filler + content[n + size :]


# --- containers


def repacked(rng, members, **how):
    """The same members by Python's own writer of archives."""
    file = BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(file, "w", how.get("method", zipfile.ZIP_STORED)) as archive,
    ):
        warnings.simplefilter("ignore")
        for name, body in members:
            archive.writestr(name, body)
        archive.comment = how.get("comment", b"")
    return file.getvalue()


def container_of(rng, content, members, other):
    listed = list(members.items())
    choice = rng.randrange(12)
    if choice == 0:  # a member twice
        return resealed_comment(rng, repacked(rng, [*listed, rng.choice(listed)]))
    if choice == 1:  # renamed
        i = rng.randrange(len(listed))
        name = rng.choice(
            ("../x", "/etc/passwd", "model.json", "arrays/999.npy", "a" * 300, "arrays/0.pkl", "")
        )
        listed[i] = (name, listed[i][1])
        return sealed(dict(listed))
    if choice == 2:  # in another order
        rng.shuffle(listed)
        return sealed(dict(listed))
    if choice == 3:  # a bomb
        bomb = [
            (name, bytes(rng.choice((10**5, 10**6))) if rng.random() < 0.3 else body) for name, body in listed
        ]
        return resealed_comment(rng, repacked(rng, bomb, method=zipfile.ZIP_DEFLATED))
    if choice == 4:  # comments
        return repacked(rng, listed, comment=rng.randbytes(rng.randrange(200)))
    if choice == 5:  # a member that nothing names
        return sealed(
            {**members, rng.choice(("arrays/77.npy", "x", "regressors/0.skops")): rng.randbytes(50)}
        )
    if choice == 6:  # without a member
        del members[rng.choice(list(members))]
        return sealed(members)
    if choice == 7:  # flags, methods, sizes and offsets of a header
        return resealed(header(rng, content))
    if choice == 8:  # the fields of 64-bit archives
        return resealed(zip64(rng, content))
    if choice == 9:  # bytes before or between
        n = rng.choice((0, len(content) // 2))
        return resealed(content[:n] + rng.randbytes(rng.randrange(1, 50)) + content[n:])
    if choice == 10:  # a member with the body of another
        name = rng.choice(list(members))
        return sealed({**members, name: rng.choice(list(other.values()))})
    return sealed({name: b"" if rng.random() < 0.3 else body for name, body in listed})


def resealed_comment(rng, content):
    """An archive of Python's with our comment, as a forger would make it."""
    comment = container.SEAL + b"0" * container.DIGEST
    return resealed(content[:-2] + struct.pack("<H", len(comment)) + comment)


def header(rng, content):
    marks = [i for mark in (b"PK\3\4", b"PK\1\2", b"PK\5\6") for i in places(content, mark)]
    at = rng.choice(marks) + rng.randrange(4, 46)
    size = rng.choice((1, 2, 4))
    value = rng.choice((b"\0" * size, b"\xff" * size, b"\1" + b"\0" * (size - 1), rng.randbytes(size)))
    return content[:at] + value + content[at + size :]


def places(content, mark):
    at = content.find(mark)
    while at >= 0:
        yield at
        at = content.find(mark, at + 1)


def zip64(rng, content):
    end = content.rfind(b"PK\5\6")
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *(rng.randrange(2**64) for _ in range(4)))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, rng.randrange(2**63), 1)
    tail = bytearray(content[end:])
    if rng.random() < 0.5:
        tail[8:20] = b"\xff" * 12
    return content[:end] + record + locator + bytes(tail)


# --- fields

STRANGE = [
    None, True, False, 0, 1, -1, 2, 3, 10**6, 2**31, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5, -1.5, 1e-320, 1e300,
    1e308, -1e308, "", "x", "auto", "nan", "__init__", "__class__", "__reduce__", "os.system", "\ud800", "🙂", "a" * 5000,
    [], {}, {"number": "nan"}, {"number": "inf"}, {"number": "-inf"}, {"number": 3}, {"list": []}, {"tuple": []},
    {"dict": {}}, {"objects": [1, "a"]}, {"object": ["Popen", {}]}, {"object": ["Absolute", {}]},
    {"object": ["__init__", {}]}, {"object": ["Units", {}]}, {"object": ["load", {}]}, {"array": 0},
    {"array": [0, "<f8", [1], "C"]}, {"array": [0, "|O", [1], "C"]}, {"regressor": 0}, {"list": [1, 2]},
    {"tuple": [1.0, 0.0]}, {"tuple": [0.0, 1.0]}, {"tuple": [{"number": "nan"}, 1]}, {"a": 1, "b": 2}, [1, 2],
]  # fmt: skip


def spots(node, path=()):
    """All places of a tree."""
    yield path
    if isinstance(node, dict):
        for key, part in node.items():
            yield from spots(part, (*path, key))
    elif isinstance(node, list):
        for i, part in enumerate(node):
            yield from spots(part, (*path, i))


def at(node, path):
    for step in path:
        node = node[step]
    return node


def field_of(rng, members, other):
    tree = json.loads(members["model.json"])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = forged_field(rng, tree, other)
    text = json.dumps(tree, ensure_ascii=True)
    choice = rng.random()
    if choice < 0.05:  # a name twice
        i = text.find('": ', rng.randrange(len(text)))
        j = text.rfind('"', 0, i)
        if 0 < j < i:
            text = text[:j] + text[j : i + 3] + "1, " + text[j:]
    elif choice < 0.08:
        text = text.replace(
            rng.choice(("1", "0.5", "null")), rng.choice(("NaN", "Infinity", "1e999", "-1e999")), 1
        )
    elif choice < 0.10:  # nested deeply
        n = rng.choice((50, 100, 5000, 100000))
        text = rng.choice(
            (text[:-1] + ', "x": ' + "[" * n + "]" * n + "}", '{"dict":' * n + "1" + "}" * n, "[" * n)
        )
    return {**members, "model.json": text.encode()}


def forged_field(rng, tree, other):
    inside = [path for path in spots(tree) if path]
    if not inside:
        return tree
    spot = rng.choice(inside)
    holder, key, choice = at(tree, spot[:-1]), spot[-1], rng.random()
    if choice < 0.55:
        holder[key] = json.loads(json.dumps(rng.choice(STRANGE)))
    elif choice < 0.65:
        value = holder[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = rng.choice((value + 1, value - 1, -value, value * 1e6, value * 1e-6, value / 3))
        elif isinstance(value, str):
            holder[key] = rng.choice(
                (value + "x", value.upper(), value[:-1], "Constant", "Dense", "Prior", "Mixture")
            )
        elif isinstance(value, list):
            holder[key] = rng.choice((value[:-1], value * 2, value[::-1], [*value, 0]))
        else:
            holder[key] = None
    elif choice < 0.75:
        del holder[key]
    elif choice < 0.85 and isinstance(holder, dict):
        holder[rng.choice(("__init__", "__class__", "extra", "prior_", "_stream", "state", "clip_", ""))] = (
            holder[key]
        )
    elif choice < 0.93:  # a part of itself elsewhere
        holder[key] = json.loads(json.dumps(at(tree, rng.choice(list(spots(tree))))))
    else:  # a part of another model
        donor = json.loads(other["model.json"])
        holder[key] = at(donor, rng.choice(list(spots(donor))))
    return tree


# --- arrays

VALUES = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 1e150, -1e-150, 3.0)


def array_of(rng, members, other):
    names = [name for name in members if name.endswith(".npy")]
    if not names:
        return field_of(rng, members, other)
    name = rng.choice(names)
    choice = rng.randrange(8)
    if choice == 0:  # of another model, or of another place
        theirs = [body for key, body in {**other, **members}.items() if key.endswith(".npy")]
        return {**members, name: rng.choice(theirs)}
    if choice == 1:  # a header that says something else
        head = members[name][:128]
        return {**members, name: flip(rng, head) + members[name][128:]}
    if choice == 2:
        return {**members, name: truncate(rng, members[name])}
    array = np.load(BytesIO(members[name]), allow_pickle=False)
    tree = json.loads(members["model.json"])
    array = changed(rng, array, choice)
    number = int(name[7:-4])
    if rng.random() < 0.9:  # the tree knows of it
        for path in spots(tree):
            node = at(tree, path)
            if isinstance(node, dict) and set(node) == {"array"} and node["array"][0] == number:
                node["array"] = [number, array.dtype.str, list(array.shape), "C"]
    if array.dtype == object:
        file = BytesIO()
        np.save(file, array, allow_pickle=True)
        body = file.getvalue()
    else:
        body = npy_header(array.dtype.str, array.shape, "C") + array.tobytes("C")
    return {**members, name: body, "model.json": json.dumps(tree).encode()}


def changed(rng, array, choice):
    if choice == 3:  # another type
        kind = rng.choice(("<f4", "<i8", "<u8", ">f8", "|b1", "<U3", "|S4", "<c16", "|O", "<M8[s]"))
        try:
            return array.astype(kind)
        except (TypeError, ValueError):
            return array.astype("<U8")
    if choice == 4:  # another shape
        return rng.choice(
            (
                array.ravel(),
                array[None],
                array[..., None],
                array.T,
                array[:-1] if array.ndim else array,
                np.repeat(array, 2),
            )
        )
    if choice == 5 and array.ndim:  # rows in another order, or twice
        return array[[rng.randrange(len(array)) for _ in range(len(array))]] if len(array) else array
    array = array.copy()
    if array.size and array.dtype.kind in "fiu":
        value = rng.choice(VALUES) if array.dtype.kind == "f" else rng.choice((0, 1, -1, 2**31, -(2**63), 7))
        with np.errstate(all="ignore"):
            flat = array.reshape(-1)
            if choice == 6:
                for _ in range(rng.choice((1, 2, array.size))):
                    flat[rng.randrange(array.size)] = np.array(value).astype(array.dtype)
            else:
                array = (array * rng.choice((2, -1, 0, 1000))).astype(array.dtype)
    return array


# --- files


def damaged(rng, corpus):
    """(class, bytes, whether the checksum is right)."""
    content, members, other = corpus.draw(rng)
    kind = rng.choice(("bytes", "bytes", "containers", "fields", "fields", "arrays", "arrays"))
    if kind == "bytes":
        name = rng.choice(("flip", "truncate", "insert", "splice", "overwrite"))
        theirs = rng.choice(corpus.files)
        found = splice(rng, content, theirs) if name == "splice" else globals()[name](rng, content)
        if rng.random() < 0.5:
            return f"bytes: {name}, checksum made right", resealed(found), True
        return f"bytes: {name}", found, found == content
    if kind == "containers":
        return "containers", container_of(rng, content, members, other), True
    found = sealed((field_of if kind == "fields" else array_of)(rng, members, other))
    if rng.random() < 0.2:  # without a right checksum: that of the file it was made from
        found = found[: -container.DIGEST] + content[-container.DIGEST :]
        return f"{kind}, old checksum", found, found == content
    return f"{kind}, checksum made right", found, True
