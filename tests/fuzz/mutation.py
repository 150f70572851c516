"""Damage to files: bytes, numbers in text, JSON, and the records inside of archives and of safetensors."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from tests.fuzz.draw import Draw

Mutate = Callable[[Draw, bytes], bytes]

NUMBERS = (*(0, -1, 1, 2, 127, 255, -128), *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, 2**64), 10**40)
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e308", "1e999", "-0", "0.5", "1e-320", "true", "null", '"8"', "[]", "")
NAMES = ("", "\0", "a\0b", "\ud800", "../../x", "/", "x" * 4000, "ä\u202e", "__metadata__", "nan", "null", "\n", "[0]")


def damaged(draw: Draw, content: bytes, other: bytes) -> bytes:
    """One to three mutations that suit what the content is. other: a file that pieces are taken from."""
    for _ in range(draw.integer(1, 3)):
        content = draw.choice(_suiting(content))(draw, content) if draw.chance(0.9) else _spliced(draw, content, other)
    return content


def _suiting(content: bytes) -> tuple[Mutate, ...]:
    if content.startswith(b"PK"):
        return (_in_archive, _in_archive, _in_archive, *BINARY)
    if _header_of(content) is not None:
        return (_in_safetensors, _in_safetensors, *BINARY)
    start = content[:512].lstrip(b"\xef\xbb\xbf \n\t")
    if start.startswith((b"{", b"[")):
        return (_in_json, _in_json, _in_json, *TEXT)
    return TEXT if b"\0" not in content[:4096] else BINARY


# Bytes


def _flipped(draw: Draw, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if found:
            found[draw.integer(0, len(found) - 1)] ^= 1 << draw.integer(0, 7)
    return bytes(found)


def _overwritten(draw: Draw, content: bytes) -> bytes:
    """A number of 1, 2, 4 or 8 bytes becomes another."""
    size, number = draw.choice((1, 2, 4, 8)), draw.choice(NUMBERS)
    at = draw.integer(0, max(len(content) - size, 0))
    written = (number % 2 ** (8 * size)).to_bytes(size, draw.choice(("little", "little", "big")))
    return content[:at] + written + content[at + size :]


def _truncated(draw: Draw, content: bytes) -> bytes:
    return content[: draw.integer(0, len(content))]


def _moved(draw: Draw, content: bytes) -> bytes:
    """A piece is left out, stands twice, or is put elsewhere."""
    a, b = sorted((draw.integer(0, len(content)), draw.integer(0, len(content))))
    b = min(b, a + draw.choice((1, 4, 16, 200, 10**9)))
    at = draw.integer(0, len(content))
    rest = content if draw.chance(0.5) else content[:a] + content[b:]
    return rest if draw.chance(0.3) else rest[:at] + content[a:b] + rest[at:]


def _spliced(draw: Draw, content: bytes, other: bytes) -> bytes:
    a, b = draw.integer(0, len(content)), draw.integer(0, len(other))
    return content[:a] + other[b : b + draw.choice((8, 64, 1000, 10**9))] + (content[a:] if draw.chance(0.5) else b"")


BINARY: tuple[Mutate, ...] = (_flipped, _overwritten, _overwritten, _truncated, _moved)


# Text


def _number_changed(draw: Draw, content: bytes) -> bytes:
    places = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", content)]
    if not places:
        return content
    a, b = draw.choice(places)
    written = str(draw.choice(NUMBERS)) if draw.chance(0.7) else draw.choice(NOT_NUMBERS)
    return content[:a] + written.encode() + content[b:]


def _word_changed(draw: Draw, content: bytes) -> bytes:
    """A word becomes another of the file, or a strange one."""
    places = [match.span() for match in re.finditer(rb"[A-Za-z_][A-Za-z0-9_.]*", content)]
    if not places:
        return content
    (a, b), (c, d) = draw.choice(places), draw.choice(places)
    written = content[c:d] if draw.chance(0.7) else draw.choice(NAMES).encode("utf-8", "surrogatepass")
    return content[:a] + written + content[b:]


def _nested(draw: Draw, content: bytes) -> bytes:
    """Brackets that are opened thousands of times."""
    at = draw.integer(0, len(content))
    opened = draw.choice((b"[", b"(", b"{", b'{"a":', b"<a>", b"- ", b"&a [*a,", b"-", b"!!python/object:os.system "))
    return content[:at] + opened * draw.choice((1, 3, 5000)) + content[at:]


def _lines_moved(draw: Draw, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    a, b = draw.integer(0, len(lines)), draw.integer(0, len(lines))
    taken = lines[a : a + draw.integer(1, 4)]
    if draw.chance(0.5):
        del lines[a : a + len(taken)]
    return b"".join([*lines[:b], *taken, *lines[b:]] if draw.chance(0.7) else lines)


TEXT: tuple[Mutate, ...] = (_number_changed, _number_changed, _word_changed, _nested, _lines_moved, *BINARY)


# JSON


def _in_json(draw: Draw, content: bytes) -> bytes:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return draw.choice(TEXT)(draw, content)
    text = json.dumps(_in_document(draw, document))
    if draw.chance(0.1):  # a key that stands twice, which no dict can hold
        at = text.find("{") + 1
        text = f"{text[:at]}{text[at:].split(',')[0].strip('{}[]')}, {text[at:]}"
    return text.encode("utf-8", "surrogatepass")


def _in_document(draw: Draw, document: Any) -> Any:
    """The document with one node, anywhere in it, changed."""
    path: list[tuple[Any, Any]] = []
    node = document
    while isinstance(node, dict | list) and node and (not path or draw.chance(0.85)):
        key = draw.choice(list(node)) if isinstance(node, dict) else draw.integer(0, len(node) - 1)
        path.append((node, key))
        node = node[key]
    if not path:
        return _other_value(draw, document)
    parent, key = path[-1]
    kind = draw.integer(0, 5)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[draw.choice((*NAMES, *map(str, list(parent)[:9])))] = parent.pop(key)
    elif kind == 1:
        parent.insert(draw.integer(0, len(parent)), node)
    elif kind == 2:
        holder, other = draw.choice(path)
        parent[key] = json.loads(json.dumps(holder[other]))
    else:
        parent[key] = _other_value(draw, node)
    return document


def _other_value(draw: Draw, value: Any) -> Any:
    if isinstance(value, str) and draw.chance(0.6):
        changed = _number_changed(draw, value.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
        return changed if changed != value else draw.choice(NAMES)
    if isinstance(value, int) and draw.chance(0.5):
        return value + draw.choice((-1, 1))
    wrapped: Any = value
    for _ in range(draw.choice((1, 2, 900))):
        wrapped = [wrapped]
    return draw.choice((*NUMBERS, None, True, False, 0.5, float("nan"), float("inf"), 1e308, [], {}, "", wrapped))


# Records inside


def _header_of(content: bytes) -> bytes | None:
    """The JSON that a safetensors file begins with; None where this is none."""
    if len(content) < 10:
        return None
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length] if content[8:9] == b"{" and length <= len(content) - 8 else None


def _in_safetensors(draw: Draw, content: bytes) -> bytes:
    """A header that was changed, with its length; or other values."""
    header = _header_of(content)
    if header is None:
        return draw.choice(BINARY)(draw, content)
    data = content[8 + len(header) :]
    if draw.chance(0.4):
        return content[: 8 + len(header)] + draw.choice(BINARY)(draw, data)
    changed = _in_json(draw, header)
    return struct.pack("<Q", len(changed)) + changed + data


def _in_archive(draw: Draw, content: bytes) -> bytes:
    """A member of a zip archive that was changed, its checksum being right again; or another list of members."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (*(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError), EOFError, ValueError, OSError):
        return draw.choice(BINARY)(draw, content)
    if not members:
        return draw.choice(BINARY)(draw, content)
    place = draw.integer(0, len(members) - 1)
    info, data = members[place]
    kind = draw.integer(0, 9)
    if kind == 0:
        del members[place]
    elif kind == 1:
        members.append((draw.choice(members)[0], data))
    else:
        members[place] = (info, draw.choice(_suiting(data))(draw, data))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for info, data in members:
            archive.writestr(info.filename, data, info.compress_type)
    return made.getvalue()
