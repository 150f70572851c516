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
    """storages: how tensors lie in memory.

    aliased: of a tensor without memory of its own, such as a Pad that is a border of its data, the one in whose memory
    it is read. It has a storage, too, if one describes it; a Flatten, say, has none.
    concats: of a part of a Concat that is written where it belongs in its memory, the Concat.
    copied: of any other Concat, and of what moves elements only but is not aliased, why it copies.
    """

    storages: Mapping[Symbol, Storage]
    aliased: Mapping[Symbol, Symbol]
    requests: Mapping[Symbol, Sequence[LayoutRequest]]
    concats: Mapping[Symbol, Symbol]
    copied: Mapping[Symbol, str]

    def owner(self, symbol: Symbol) -> Symbol:
        """The tensor in whose memory `symbol` is."""
        while symbol in self.aliased or symbol in self.concats:
            symbol = self.aliased[symbol] if symbol in self.aliased else self.concats[symbol]
        return symbol

    def needs_no_call(self, symbol: Symbol) -> bool:
        """Whether `symbol` needs no computing: it is all in the memory of others, or written there by others."""
        return symbol in self.aliased or symbol in self.concats.values()

    def memory(self, symbol: Symbol) -> Storage:
        """How `symbol` lies in its owner's memory, or the last tensor on the way to it that a storage describes."""
        while symbol not in self.storages:
            symbol = self.aliased[symbol]
        return self.storages[symbol]

    def serves(self, symbol: Symbol, request: LayoutRequest) -> bool:
        """Whether a reader with this request can read `symbol` where it is."""
        view = self.view(symbol)
        held = view.storage if view.flattened is None else view.flattened.storage
        return request.inner is None or (held is not None and serves(self.memory(symbol), request))

    def lies_across(self, symbol: Symbol, axis: int) -> bool:
        """Whether what follows each other in memory is known to do so along another axis."""
        return self.view(symbol).near not in (None, axis)

    def view(self, symbol: Symbol, tensor: Tensor = None, copied: Storage | None = None) -> View:
        """How `symbol` is read from `tensor`, its owner's memory or, if it lies as `copied` says, a copy of its own."""
        if copied is not None:
            return View.of(tensor, copied)
        if symbol in self.storages:
            return View.of(tensor, self.storages[symbol])
        return view_of(symbol, self.view(self.aliased[symbol], tensor))

    def view_path(self, symbol: Symbol) -> tuple[object, ...]:
        """By which operators `symbol` is read from what `memory` describes."""
        if symbol in self.storages:
            return ()
        return ((symbol.operator, symbol.type), *self.view_path(self.aliased[symbol]))


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
