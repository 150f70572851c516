"""How the tensors of a graph lie in memory, and who reads which where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import Storage, View
from mrt.backend.te.registry import view_of
from mrt.backend.tir.expressions import Tensor
from mrt.symbol import Symbol


@dataclass(frozen=True, eq=False)
class Layouts:
    """storages: how tensors lie in memory. sources: what tensors without memory of their own are read from.

    What is seen in the memory of its data, such as a Pad that is a border there, has a source, and a storage too if one
    describes it; a Flatten, say, has none.
    homes: of the parts of a Concat that are written where they belong in its memory, the Concat. copied: of any other
    Concat, and of what moves elements only but has no source, why it copies.
    """

    storages: Mapping[Symbol, Storage]
    sources: Mapping[Symbol, Symbol]
    requests: Mapping[Symbol, Sequence[LayoutRequest]]
    homes: Mapping[Symbol, Symbol]
    copied: Mapping[Symbol, str]

    def owner(self, symbol: Symbol) -> Symbol:
        """The tensor in whose memory `symbol` is."""
        while symbol in self.sources or symbol in self.homes:
            symbol = self.sources[symbol] if symbol in self.sources else self.homes[symbol]
        return symbol

    def is_seen(self, symbol: Symbol) -> bool:
        """Whether `symbol` needs no computing: it is all in the memory of others, or written there by others."""
        return symbol in self.sources or symbol in self.homes.values()

    def memory(self, symbol: Symbol) -> Storage:
        """How its owner's memory is seen as `symbol`, or as the last that a storage describes on the way to it."""
        while symbol not in self.storages:
            symbol = self.sources[symbol]
        return self.storages[symbol]

    def serves(self, symbol: Symbol, request: LayoutRequest) -> bool:
        """Whether a reader with this request can read `symbol` where it is."""
        view = self.view(symbol)
        held = view.storage if view.flattened is None else view.flattened.storage
        return request.inner is None or (held is not None and serves(self.memory(symbol), request))

    def view(self, symbol: Symbol, tensor: Tensor = None, copied: Storage | None = None) -> View:
        """How `symbol` is read from `tensor`, its owner's memory or, if it lies as `copied` says, a copy of its own."""
        if copied is not None:
            return View.of(tensor, copied)
        if symbol in self.storages:
            return View.of(tensor, self.storages[symbol])
        return view_of(symbol, self.view(self.sources[symbol], tensor))

    def way(self, symbol: Symbol) -> tuple[object, ...]:
        """By what operators `symbol` is seen in `memory`."""
        if symbol in self.storages:
            return ()
        return ((symbol.operator, symbol.type), *self.way(self.sources[symbol]))


def serves(storage: Storage, request: LayoutRequest) -> bool:
    """Whether a reader with this request can read the storage."""
    if request.inner is None:
        return True
    if storage.inner != request.inner or (
        request.dtype and (storage.dtype, storage.offset) != (request.dtype, request.offset)
    ):
        return False
    if not request.has_border:
        return True
    enough = all(
        a >= b for a, b in zip((*storage.before, *storage.after), (*request.before, *request.after), strict=True)
    )
    return enough and storage.border == request.border
