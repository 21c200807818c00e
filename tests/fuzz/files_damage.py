"""Damage and craft model files: their bytes, containers, fields and arrays."""

import copy
import hashlib
import json
import struct

import numpy as np

from forging import at, places
from tailored.files.format import CHECKSUM, pack, unpack


class Corpus:
    """Files to start from, as bytes and in parts."""

    def __init__(self, folder):
        self.files = [path.read_bytes() for path in sorted(folder.glob("*.tailored"))]
        self.parts = [(json.loads(tree), arrays) for tree, arrays in map(unpack, self.files)]

    def draw(self, rng):
        """Return the bytes of a file, its tree and arrays, and those of another file."""
        i, j = rng.randrange(len(self.files)), rng.randrange(len(self.files))
        tree, arrays = self.parts[i]
        return self.files[i], copy.deepcopy(tree), dict(arrays), self.parts[j]


def sealed(content):
    """Put a right checksum at its place, whatever the bytes are."""
    if len(content) < CHECKSUM.stop:
        return content
    zeros = content[: CHECKSUM.start] + b"0" * 64 + content[CHECKSUM.stop :]
    digest = hashlib.sha256(zeros).hexdigest().encode()
    return content[: CHECKSUM.start] + digest + content[CHECKSUM.stop :]


# --- bytes


def flip(rng, content, other):
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def truncate(rng, content, other):
    n = rng.randrange(len(content))
    return rng.choice((content[:n], content[n:]))


def insert(rng, content, other):
    n = rng.randrange(len(content))
    return content[:n] + rng.randbytes(rng.choice((1, 2, 16, 1000))) + content[n:]


def splice(rng, content, other):
    a, b = rng.randrange(len(content)), rng.randrange(len(other))
    return content[:a] + other[b : b + rng.randrange(1, 4000)] + content[rng.randrange(len(content)) :]


def overwrite(rng, content, other):
    n, size = rng.randrange(len(content)), rng.choice((1, 2, 4, 8, 100))
    filler = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return content[:n] + filler + content[n + size :]


BYTES = (flip, truncate, insert, splice, overwrite)


# --- containers


def container(rng, content):
    """Change the header of safetensors, which is JSON."""
    (n,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + n]), content[8 + n :]
    names = [name for name in header if name != "__metadata__"]
    name, choice = rng.choice(names), rng.randrange(9)
    if choice == 0:
        header[rng.choice(("../x", "/etc/passwd", "tree", "__metadata__", "a" * 3000, ""))] = header.pop(name)
    elif choice == 1:
        kinds = ("F64", "F32", "F16", "BF16", "F8_E4M3", "I64", "U8", "BOOL", "C64", "X", None)
        header[name]["dtype"] = rng.choice(kinds)
    elif choice == 2:
        sizes = (0, 1, -1, 2**31, 2**40, 2**63, 10**30, 0.5, "8")
        header[name]["shape"] = [rng.choice(sizes) for _ in range(rng.randrange(5))]
    elif choice == 3:
        header[name]["data_offsets"][rng.randrange(2)] = rng.choice((0, 1, -1, len(data), 2**40, 2**63, "0"))
    elif choice == 4:
        header[name] = header[rng.choice(names)]
    elif choice == 5:
        del header[name]
    elif choice == 6:
        data = rng.choice((data + rng.randbytes(50), data[:-1], b""))
    elif choice == 7:
        header["more"] = {"dtype": "U8", "shape": [5], "data_offsets": [len(data), len(data) + 5]}
        data += b"12345"
    else:
        header["__metadata__"] = rng.choice(({"sha256": 1}, {}, [], {"more": "x", **header["__metadata__"]}))
    text = json.dumps(header, separators=(",", ":")).encode()
    length = rng.choice((len(text),) * 6 + (len(text) - 1, 2**40, 0))
    return struct.pack("<Q", length) + text + data


# --- fields

STRANGE = [
    None, True, False, 0, 1, -1, 2, 3, 10**6, 2**31, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5, -1.5, 1e-320, 1e300,
    1e308, -1e308, "", "x", "auto", "nan", "__init__", "__class__", "__reduce__", "os.system", "\ud800", "🙂", "a" * 5000,
    [], {}, {"number": "nan"}, {"number": "inf"}, {"number": "-inf"}, {"number": 3}, {"tuple": []}, {"dict": {}},
    {"objects": [[2], [1, "a"]]}, {"objects": [[-1], []]}, {"objects": [[2**31 - 1, 2**31 - 1], []]},
    {"object": ["Popen", {}]}, {"object": ["Absolute", {}]}, {"object": ["__init__", {}]}, {"object": ["Scaling", {}]},
    {"object": ["load", {}]}, {"array": 0}, {"array": ["0", "C"]}, {"array": ["0", "X"]}, {"strings": "0"},
    {"csr": [1, 2, 3, [4, 5]]}, {"tuple": [1.0, 0.0]}, {"tuple": [0.0, 1.0]},
    {"tuple": [{"number": "nan"}, 1]}, {"a": 1, "b": 2}, [1, 2], {"array": ["0", ["C"]]}, {"object": [["a"], {}]},
]  # fmt: skip


def field(rng, tree, other):
    """Return the bytes of another tree."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change_field(rng, tree, other)
    text = json.dumps(tree)
    choice = rng.random()
    if choice < 0.05:  # a name twice
        i = text.find('": ', rng.randrange(len(text)))
        j = text.rfind('"', 0, i)
        if 0 < j < i:
            text = text[:j] + text[j : i + 3] + "1, " + text[j:]
    elif choice < 0.08:
        old, new = rng.choice(("1", "0.5", "null")), rng.choice(("NaN", "Infinity", "1e999", "-1e999"))
        text = text.replace(old, new, 1)
    elif choice < 0.10:  # nested deeply
        n = rng.choice((50, 100, 5000, 100000))
        nested = (text[:-1] + ', "x": ' + "[" * n + "]" * n + "}", '{"tuple":[' * n + "1" + "]}" * n, "[" * n)
        text = rng.choice(nested)
    return text.encode()


def change_field(rng, tree, other):
    spot = rng.choice([path for path in places(tree) if path] or [None])
    if spot is None:
        return
    holder, key, choice = at(tree, spot[:-1]), spot[-1], rng.random()
    value = holder[key]
    if choice < 0.55:
        holder[key] = copy.deepcopy(rng.choice(STRANGE))
    elif choice < 0.65:
        if isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = rng.choice((value + 1, value - 1, -value, value * 10**6, value * 1e-6, value / 3))
        elif isinstance(value, str):
            words = (value + "x", value.upper(), value[:-1], "Constant", "Dense", "Squared", "Mixture")
            holder[key] = rng.choice(words)
        elif isinstance(value, list):
            holder[key] = rng.choice((value[:-1], value * 2, value[::-1], [*value, 0]))
        else:
            holder[key] = None
    elif choice < 0.75:
        del holder[key]
    elif choice < 0.85 and isinstance(holder, dict):
        holder[rng.choice(("__init__", "__class__", "extra", "prior_", "_stream", "state", ""))] = value
    else:  # a part of this tree, or of another
        donor = tree if choice < 0.93 else other[0]
        holder[key] = copy.deepcopy(at(donor, rng.choice(list(places(donor)))))


# --- arrays

VALUES = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 1e150, -1e-150, 3.0)


def change_array(rng, arrays, other):
    """Change one of the arrays."""
    name, choice = rng.choice(list(arrays)), rng.randrange(6)
    array = arrays[name]
    if choice == 0:  # of another place, or of another model
        arrays[name] = rng.choice([*arrays.values(), *other[1].values()])
    elif choice == 1:
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(rng.choice(("f4", "f2", "i8", "u8", "u4", "i1", "?")))
    elif choice == 2:
        shapes = [
            array.ravel(),
            array[None],
            array[..., None],
            np.ascontiguousarray(array.T),
            np.repeat(array, 2),
        ]
        arrays[name] = rng.choice([*shapes, array[:-1], np.zeros((0, *array.shape), array.dtype)])
    elif choice == 3 and len(array):
        arrays[name] = array[[rng.randrange(len(array)) for _ in range(len(array))]]
    elif choice == 4:
        with np.errstate(all="ignore"):
            arrays[name] = (array * rng.choice((2, -1, 0, 1000))).astype(array.dtype)
    elif array.size:
        values = VALUES if array.dtype.kind == "f" else (0, 1, -1, 2**31, -(2**63), 7)
        flat = array.copy().reshape(-1)
        with np.errstate(all="ignore"):
            value = np.array(rng.choice(values)).astype(array.dtype)
        for _ in range(rng.choice((1, 2, array.size))):
            flat[rng.randrange(array.size)] = value
        arrays[name] = flat.reshape(array.shape)


# --- files


def damaged(rng, corpus):
    """Return a class of damage, the bytes of a file, and whether its checksum is right."""
    content, tree, arrays, other = corpus.draw(rng)
    kind = rng.choice(("bytes", "bytes", "containers", "fields", "fields", "arrays", "arrays"))
    if kind == "bytes":
        change = rng.choice(BYTES)
        found, kind = change(rng, content, rng.choice(corpus.files)), f"bytes: {change.__name__}"
        if rng.random() < 0.5:
            return f"{kind}, right checksum", sealed(found), True
        return kind, found, found == content
    if kind == "containers":
        return kind, sealed(container(rng, content)), True
    if kind == "fields":
        found = pack(field(rng, tree, other), arrays)
    else:
        change_array(rng, arrays, other)
        found = pack(json.dumps(tree).encode(), arrays)
    if rng.random() < 0.2:
        found = found[: CHECKSUM.start] + content[CHECKSUM] + found[CHECKSUM.stop :]
        return f"{kind}, old checksum", found, found == content
    return f"{kind}, right checksum", found, True
