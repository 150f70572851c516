"""Work on several cores of this machine, by threads: NumPy and TVM let go of the interpreter while they compute."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from mrt.execution.executor import Gathers, Keeps, Part, Result, Total, Work
from mrt.symbol import Array
from mrt.workers import cores, in_order


class Threads:
    """Does work on the cores of this machine; the default, which needs nothing."""

    @property
    def width(self) -> int:
        return cores()

    def in_order(
        self,
        work: Work[Result],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
    ) -> Iterator[Result]:
        return in_order(lambda part: work(_read(part), *programs), parts, most)

    def gathered(
        self,
        begin: Callable[..., Gathers[Part, Total]],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
        done: Callable[[Part], None] | None = None,
    ) -> Total:
        gathers, is_begun = begin(*programs), False

        def add(part: Part) -> Part:
            gathers.add(_read(part))
            return part

        for part in in_order(add, parts, most):
            is_begun = True
            if done is not None:
                done(part)
        if not is_begun:
            raise ValueError("there is no part to work on")
        return gathers.total()

    def kept(
        self,
        work: Work[Keeps],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
    ) -> list[_OnDisk]:
        """Raises OSError where the folder for temporary files has no room."""
        folder = _Folder()

        def written(part: Part) -> _OnDisk:
            return _OnDisk.of(work(_read(part), *programs), part, folder)

        return list(in_order(written, parts, most))


THREADS = Threads()


class _Folder:
    """A folder for files that is there as long as anything knows of it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mrt-")
        self._numbers = count()

    def new(self) -> int:
        """The number of a new file."""
        return next(self._numbers)

    def path(self, number: int) -> str:
        return os.path.join(self._folder.name, str(number))


class _File:
    """An array in a file, which is removed with this object. There is one for each tensor of each part."""

    __slots__ = ("_dtype", "_folder", "_number", "_shape")

    def __init__(self, value: Array, folder: _Folder) -> None:
        self._folder, self._number = folder, folder.new()
        self._dtype, self._shape = value.dtype, value.shape
        with open(folder.path(self._number), "wb") as file:
            file.write(np.ascontiguousarray(value).data if value.size else b"")

    def __del__(self) -> None:
        with suppress(OSError):
            os.unlink(self._folder.path(self._number))

    def read(self) -> Array:
        return np.fromfile(self._folder.path(self._number), self._dtype).reshape(self._shape)


@dataclass(frozen=True, eq=False)
class _OnDisk:
    """A result whose arrays lie in files; rest: the result without them."""

    rest: Any
    files: Mapping[str, _File]

    @classmethod
    def of(cls, result: Any, part: Any, folder: _Folder) -> _OnDisk:
        carried = {name: part.files[name] for name in result.carried}
        files = {name: _File(value, folder) for name, value in result.arrays.items()}
        return cls(replace(result, arrays={}), {**carried, **files})


class _Files(Mapping[str, Array]):
    """The arrays of files, each read when it is asked for."""

    def __init__(self, files: Mapping[str, _File]) -> None:
        self._files = files

    def __getitem__(self, name: str) -> Array:
        return self._files[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _read(part: Any) -> Any:
    return replace(part.rest, arrays=_Files(part.files)) if isinstance(part, _OnDisk) else part
