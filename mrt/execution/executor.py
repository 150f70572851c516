"""The protocol by which work is handed over, without knowing on how many cores and machines it runs.

Work is a pure function of a part of the data, or of one of many candidates: it depends on its part and on the programs
alone, and changes neither. It may so be done anywhere, in any order, and again where a machine is lost. What crosses
from one process to another is data: functions stand at the top of a module, objects are dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from typing_extensions import Self

from mrt.symbol import Array

Part = TypeVar("Part")
Part_contra = TypeVar("Part_contra", contravariant=True)
Result = TypeVar("Result")
Total = TypeVar("Total", bound="Merges")
Total_co = TypeVar("Total_co", bound="Merges", covariant=True)

Work = Callable[..., Result]
"""Called with a part and the programs, in order; gives the result of the part."""


class Merges(Protocol):
    """What was found in some parts, to which that of others can be added: in any order, with the same total."""

    def merge(self, other: Self) -> Self:
        """What both found; neither is changed, since both may be needed again."""


class Gathers(Protocol[Part_contra, Total_co]):
    """Takes the parts that one process is given."""

    def add(self, part: Part_contra) -> None:
        """Takes one part more; called from several threads at once."""

    def total(self) -> Total_co:
        """What was found in all parts; nothing is added any more."""


class Keeps(Protocol):
    """A result that takes much room.

    arrays: by name, those that are new. carried: the names of arrays of the part that it takes over from there; the
    part is then a result that was kept.
    """

    @property
    def arrays(self) -> Mapping[str, Array]: ...

    @property
    def carried(self) -> Collection[str]: ...


class Kept(Protocol):
    """Results that stay where they were made, as long as this is kept: each may be a part of later work there."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Executor(Protocol):
    """Does work on many parts. Results never depend on how many do it.

    programs: what the work runs: a `Program`, or a compiled module. Each goes to a process once, as long as it is known
    here, and is compiled there once. most: how many parts at once on one machine, if fewer than there are cores. What
    the work or the parts raise is raised in the place of the first part that raises, and nothing goes on running.
    """

    @property
    def width(self) -> int:
        """How many parts can be worked on at once."""

    def in_order(
        self,
        work: Work[Result],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
    ) -> Iterator[Result]:
        """The result of each part, in their order. Parts are drawn as they are needed, by the caller's thread."""

    def gathered(
        self,
        begin: Callable[..., Gathers[Part, Total]],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
        done: Callable[[Part], None] | None = None,
    ) -> Total:
        """What was found in all parts together.

        begin: called with the programs, where parts are worked on, for what takes some of them. done: told of parts
        that are finished, in any order. ValueError where there is no part.
        """

    def kept(
        self,
        work: Work[Keeps],
        parts: Iterable[Part],
        programs: Sequence[Any] = (),
        most: int | None = None,
    ) -> Kept:
        """The results, in their order, which stay where they were made; each a dataclass that is `Keeps`."""
