"""The bytes of a model file: a zip archive in one canonical form, with a checksum over all of it.

Members are stored and not deflated, so that a file never holds more than its own size, and they follow each other
without gaps.  The archive's comment ends with the SHA-256 of every byte before it.  The reader looks at the checksum
first; then it makes the headers that the writer would have made for these members, and refuses a file with others.
Any zip program reads such a file; this module needs none, and no field of a stranger's header is ever acted upon.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping

#: Before the digest, as the comment of the archive.
SEAL = b"tailored model file, sha256 "
DIGEST = 64
#: What the headers of a zip archive can count.
MOST_BYTES, MOST_MEMBERS = 2**32 - 1, 2**16 - 2

_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_DATE = 0x21  # the first day that a zip archive knows: equal models are equal files


class Broken(ValueError):
    """Bytes are not those of a model file: the member, and the reason."""

    def __init__(self, member: str, reason: str) -> None:
        self.member, self.reason = member, reason
        super().__init__(f"{member}: {reason}")


def pack(members: Mapping[str, bytes]) -> Iterator[bytes]:
    """The bytes of a file with these members, piece by piece."""
    size = sum(len(body) + 2 * len(name) + _LOCAL.size + _CENTRAL.size for name, body in members.items())
    if size > MOST_BYTES - 1000 or len(members) > MOST_MEMBERS:
        raise ValueError(
            f"path: the model takes {size:,} bytes in {len(members):,} members, too many for one file"
        )
    digest = hashlib.sha256()
    for piece in _pieces(members):
        digest.update(piece)
        yield piece
    yield digest.hexdigest().encode()


def _pieces(members: Mapping[str, bytes]) -> Iterator[bytes]:
    """All but the digest."""
    directory, offset = [], 0
    for name, body in members.items():
        crc = zlib.crc32(body)
        header = _local_header(name, len(body), crc)
        directory.append(_central_header(name, len(body), crc, offset))
        offset += len(header) + len(body)
        yield header
        yield body
    yield from directory
    yield _end(len(directory), sum(map(len, directory)), offset)


def _local_header(name: str, size: int, crc: int) -> bytes:
    return _LOCAL.pack(b"PK\3\4", 20, 0, 0, 0, _DATE, crc, size, size, len(name), 0) + name.encode()


def _central_header(name: str, size: int, crc: int, offset: int) -> bytes:
    numbers = (20, 20, 0, 0, 0, _DATE, crc, size, size, len(name), 0, 0, 0, 0, 0, offset)
    return _CENTRAL.pack(b"PK\1\2", *numbers) + name.encode()


def _end(n_members: int, size: int, offset: int) -> bytes:
    return _END.pack(b"PK\5\6", 0, 0, n_members, n_members, size, offset, len(SEAL) + DIGEST) + SEAL


def unpack(content: bytes) -> dict[str, memoryview]:
    """The members of a file; nothing is copied."""
    view, sealed = memoryview(content), len(content) - DIGEST
    end = sealed - len(SEAL) - _END.size
    if end < 0 or content[:2] != b"PK" or view[end + _END.size : sealed] != SEAL:
        if content[30:42] == b"learner.json":
            raise Broken("", "was written by an earlier tailored, in format 3 or before, which this version does not "
                             "read; load it with the version that wrote it, or fit and save again")  # fmt: skip
        raise Broken("", "is not a file written by tailored's save, or its end is missing")
    if hashlib.sha256(view[:sealed]).hexdigest().encode() != view[sealed:]:
        raise Broken("", "the checksum does not fit: the file is damaged; take a copy of it, or save again")
    return _members(view, end)


def _members(view: memoryview, end: int) -> dict[str, memoryview]:
    """Those of a file whose checksum fits and whose directory ends at ``end``."""
    *_, n_members, size, start, _ = _END.unpack_from(view, end)
    if start + size != end or view[end : end + _END.size + len(SEAL)] != _end(n_members, size, start):
        raise Broken("", "the end of its directory is not as save writes it")
    found: dict[str, memoryview] = {}
    at, offset = start, 0
    for _ in range(n_members):
        if end - at < _CENTRAL.size:
            raise Broken("", "its directory is cut off")
        fields = _CENTRAL.unpack_from(view, at)
        crc, length, name_length = fields[7], fields[8], fields[10]
        raw = bytes(view[at + _CENTRAL.size : at + _CENTRAL.size + name_length])
        if not raw.isascii() or len(raw) != name_length:
            raise Broken("", "its directory has a name that save does not write")
        name = raw.decode()
        if name in found:
            raise Broken(name, "is there twice")
        header = _local_header(name, length, crc)
        body = view[offset + len(header) : offset + len(header) + length]
        if (
            view[at : at + _CENTRAL.size + name_length] != _central_header(name, length, crc, offset)
            or view[offset : offset + len(header)] != header
            or offset + len(header) + length > start
            or zlib.crc32(body) != crc
        ):
            raise Broken(name, "its headers are not as save writes them")
        found[name] = body
        at, offset = at + _CENTRAL.size + name_length, offset + len(header) + length
    if at != end or offset != start:
        raise Broken("", "there are bytes between its members")
    return found
