"""Graphs as files: symbol JSON and the parameters as safetensors, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import reprlib
import secrets
import stat
from collections.abc import Mapping
from itertools import zip_longest
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from mrt.errors import GraphError, ModelFileError
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array
from mrt.symbol.limits import BYTES_VARIABLE, JSON_BYTES, PARAMETER_BYTES, byte_limit
from mrt.symbol.mxnet_json import graph_from_json, graph_to_json
from mrt.symbol.strict_json import parse_json

_RESERVED_NAME = "__metadata__"
"""The one name that safetensors keeps for itself."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
"""What a path may be that is no regular file."""


def graph_to_bytes(graph: Graph) -> tuple[bytes, bytes]:
    """The symbol JSON (UTF-8) and the safetensors of a graph; the same bytes for the same graph."""
    if _RESERVED_NAME in graph.parameters:
        raise GraphError(f"a parameter is called {_RESERVED_NAME}, which safetensors reserves; rename it")
    parameters = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in graph.parameters.items()}
    return graph_to_json(graph).encode(), safetensors.numpy.save(parameters)


def write_graph(graph: Graph, symbol_path: str | Path, parameters_path: str | Path) -> None:
    """Writes a graph as two files, each of which appears whole or not at all; ModelFileError where it cannot."""
    symbols, parameters = graph_to_bytes(graph)
    atomic_write_all({Path(parameters_path): parameters, Path(symbol_path): symbols})


def read_graph(symbol_path: str | Path, parameters_path: str | Path) -> Graph:
    """The graph of two files that `write_graph` wrote.

    Raises ModelFileError, naming the file, where one is missing, truncated or malformed.
    """
    parameters = read_file(Path(parameters_path), PARAMETER_BYTES)
    return graph_from_bytes(read_file(Path(symbol_path), JSON_BYTES), parameters, symbol_path, parameters_path)


def graph_from_bytes(symbols: bytes, parameters: bytes, symbol_path: str | Path, parameters_path: str | Path) -> Graph:
    """The inverse of `graph_to_bytes`; ModelFileError, naming the file that is at fault, where it is malformed."""
    arrays = _load_parameters(parameters, Path(parameters_path))
    try:
        return graph_from_json(symbols.decode(), arrays)
    except UnicodeError as error:
        raise ModelFileError(f"{symbol_path} is no UTF-8 text: {error}") from None
    except (ModelFileError, GraphError) as error:
        raise ModelFileError(f"{symbol_path}: {error}") from None


def check_nothing_else(
    graph: Graph, symbols: bytes, parameters: bytes, symbol_path: str | Path, parameters_path: str | Path
) -> None:
    """ModelFileError where the files that `graph` was read from hold anything but what `graph_to_bytes` writes for it.

    So no unknown key, no unread node, no number of another type and no further array stands in them.
    """
    try:
        again = graph_to_bytes(graph)
    except UnicodeError as error:
        raise ModelFileError(f"{symbol_path} holds a name that is no text: {error}") from None
    if again[0] != symbols:
        _check_same_text(symbols, again[0], symbol_path)
    if again[1] != parameters:
        raise ModelFileError(f"{parameters_path} is not as MRT writes the parameters of {symbol_path}: it holds more")


def _check_same_text(found: bytes, written: bytes, path: str | Path) -> None:
    """The same for two texts that differ. Layout alone may: a file that an editor indented otherwise says the same."""
    try:
        texts = [indented_json(parse_json(text)).splitlines() for text in (found, written)]
    except RecursionError:  # of what is nested less deeply than JSON's own reader takes
        raise ModelFileError(f"{path}: it is nested too deeply") from None
    for line, other in zip_longest(*texts, fillvalue=""):
        if line != other:
            raise ModelFileError(
                f"{path} is not as MRT writes this graph: {reprlib.repr(line.strip())} stands where "
                f"{reprlib.repr(other.strip())} is needed"
            )


def indented_json(value: Any, indent: str = "") -> str:
    """What `json.dumps(value, indent=1)` gives, most of it written by json's encoder in C; indent: where it stands.

    value: of JSON's types, with dicts whose keys are texts; arrays stand for the nested lists of their elements.
    """
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    inner = indent + " "
    if isinstance(value, np.ndarray) and value.ndim and value.size:
        return _indented_array(value, indent)
    if isinstance(value, np.ndarray):
        return indented_json(value.tolist(), indent)
    if isinstance(value, dict) and value:
        entries = [f"{encode_basestring_ascii(key)}: {indented_json(entry, inner)}" for key, entry in value.items()]
        return "{\n" + inner + f",\n{inner}".join(entries) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        entries = [indented_json(entry, inner) for entry in value]
        return f"[\n{inner}" + f",\n{inner}".join(entries) + f"\n{indent}]"
    return json.dumps(value)


def _indented_array(value: Array, indent: str) -> str:
    """An array with axes and elements: the texts of the elements, joined along the last axis, then the one before."""
    texts = json.dumps(value.reshape(-1).tolist(), separators=("\n", ": "))[1:-1].split("\n")
    for axis, length in reversed(list(enumerate(value.shape))):
        outer = indent + " " * axis
        between = f",\n{outer} "
        groups = (texts[first : first + length] for first in range(0, len(texts), length))
        texts = [f"[\n{outer} {between.join(group)}\n{outer}]" for group in groups]
    return texts[0]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, read piece by piece; OSError where it cannot be read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def check_replaceable(path: Path) -> None:
    """OSError where a folder, or a device such as /dev/null, lies at `path`, which a file would take the place of."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is a device or a pipe, a file is needed", str(path))


def atomic_write_all(files: Mapping[Path, bytes]) -> None:
    """Puts contents at their paths, each in one step and in order, once all of them are known to fit.

    At any time there is a path's old file or its new one. Raises ModelFileError, and leaves every file as it was, where
    a folder is missing, read-only or full, or a path that of a folder or a device.
    """
    finished: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in files.items():
            temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
            finished[path] = temporary
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path in finished:
            check_replaceable(path)
        for path, temporary in finished.items():
            temporary.replace(path)
    except BaseException as error:
        for temporary in finished.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError):
            raise ModelFileError(f"cannot write {path}: {error.strerror or error}") from None
        raise


def read_file(path: Path, limit: int, follow: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes; the variable MRT_MAX_FILE_BYTES allows more.

    follow: whether it may be one that a link leads to. Never waits, as opening a pipe or a terminal would. Raises
    ModelFileError naming the path, what was found and what is needed: for a file that is missing, unreadable, larger,
    or changed while it is read, and, before a byte is read, for what is no regular file.
    """
    limit = byte_limit(limit)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            return _whole(descriptor, path, limit)
        finally:
            os.close(descriptor)
    except OSError as error:
        is_link = error.errno == errno.ELOOP and not follow
        reason = "it is a link; a regular file is needed" if is_link else error.strerror or error
        raise ModelFileError(f"cannot read {path}: {reason}") from None
    except ValueError as error:
        raise ModelFileError(f"{str(path)!r} is the path of no file: {error}") from None


def _whole(descriptor: int, path: Path, limit: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise ModelFileError(f"{path} is {kind}; a regular file is needed")
    if status.st_size > limit:
        raise ModelFileError(
            f"{path} holds {status.st_size} bytes; at most {limit} are read: set {BYTES_VARIABLE} to allow more"
        )
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(status.st_size + 1)
    if len(content) != status.st_size:
        raise ModelFileError(f"{path} was changed while it was read; read it again once it is written")
    return content


def _load_parameters(content: bytes, path: Path) -> dict[str, Array]:
    try:
        return dict(safetensors.numpy.load(content))
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{path} is no safetensors file, or truncated: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} holds a tensor that cannot be read: {error}") from None
