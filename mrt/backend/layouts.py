"""Choosing how every tensor of a graph lies in memory, from what its readers wish.

A convolution reads channels innermost, in the dtype of its dots, with its border around; whoever makes the tensor
writes it so. A reader that it does not serve gets a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mrt.backend.compute import Kind, Wish, kind_of, wish_of
from mrt.backend.expressions import Expression, Tensor, unravel
from mrt.backend.machine import Machine
from mrt.backend.regions import Region
from mrt.backend.storage import VECTOR, Storage, View
from mrt.symbol import Graph, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Flatten

FEW = 4
"""So many channels, of a tensor that no vectors are stored to, are padded to whole dots only."""
DOT_DEPTH = 4
"""Channels of the deepest dot."""


@dataclass(frozen=True, eq=False)
class Layouts:
    """storages: how tensors lie in memory. sources: what tensors without memory of their own are read from.

    A Pad that its readers find as the border of its data has a storage and a source; a Flatten has a source only.
    """

    storages: Mapping[Symbol, Storage]
    sources: Mapping[Symbol, Symbol]
    wishes: Mapping[Symbol, Sequence[Wish]]

    def owner(self, symbol: Symbol) -> Symbol:
        """The tensor in whose memory `symbol` is."""
        while symbol in self.sources:
            symbol = self.sources[symbol]
        return symbol

    def memory(self, symbol: Symbol) -> Storage:
        """How its owner's memory is seen as `symbol`, or as what `symbol` flattens."""
        while symbol not in self.storages:
            symbol = self.sources[symbol]
        return self.storages[symbol]

    def view(self, symbol: Symbol, tensor: Tensor = None, copied: Storage | None = None) -> View:
        """How `symbol` is read from `tensor`, its owner's memory or, if it lies as `copied` says, a copy of its own."""
        if copied is not None:
            return View.of(tensor, copied)
        if symbol in self.storages:
            return View.of(tensor, self.storages[symbol])
        return flattened(self.view(self.sources[symbol], tensor), symbol)


def flattened(view: View, symbol: Symbol) -> View:
    """`view` as its Flatten."""

    def element(n: Expression, place: Expression) -> Expression:
        return view(n, *unravel(place, view.shape[1:]))

    return View(symbol.shape, symbol.dtype, element, flattened=view)


def plan_layouts(graph: Graph, regions: Sequence[Region], machine: Machine) -> Layouts:
    """How the tensors that regions exchange lie in memory; those of the graph's inputs lie as the user gives them."""
    plan = _Plan(graph, machine)
    for region in regions:
        plan.collect(region)
    for region in reversed(regions):
        plan.find_alias(region)
    for symbol in graph.inputs:
        plan.storages[symbol] = Storage.plain(symbol.type)
    for region in regions:
        plan.place(region)
    return Layouts(plan.storages, plan.sources, plan.wishes)


@dataclass(eq=False)
class _Plan:
    graph: Graph
    machine: Machine
    wishes: dict[Symbol, list[Wish]] = field(default_factory=dict)
    sources: dict[Symbol, Symbol] = field(default_factory=dict)
    storages: dict[Symbol, Storage] = field(default_factory=dict)

    def collect(self, region: Region) -> None:
        """Notes what the region wishes of the data that it reads."""
        for symbol in region.symbols:
            if symbol.inputs and symbol.inputs[0] in region.inputs:
                wish = wish_of(symbol, [self.graph.value(source) for source in symbol.inputs], self.machine)
                if wish is not None:
                    self.wishes.setdefault(symbol.inputs[0], []).append(wish)

    def find_alias(self, region: Region) -> None:
        """Lets a lone Flatten or Pad be read from its data's memory, which then must serve its readers."""
        symbol = region.output
        found = self.wishes.get(symbol, [])
        if len(region.symbols) != 1 or symbol in self.graph.outputs or not found:
            return
        data = symbol.inputs[0]
        if data.is_variable:
            return
        match symbol.operator:
            case Flatten() if data.type.rank > 2:
                passed = [replace(wish, inner=1) for wish in found if wish.inner == 1]
            case Pad() as pad if self._is_border(pad, found, data):
                before, after = pad.pad_width[::2], pad.pad_width[1::2]
                passed = [_wider(wish, before, after, pad.constant_value) for wish in found if wish.inner == 1]
            case _:
                return
        if len(passed) == len(found):
            self.sources[symbol] = data
            self.wishes.setdefault(data, []).extend(passed)

    def _is_border(self, pad: Pad, found: Sequence[Wish], data: Symbol) -> bool:
        """Whether what the Pad adds can be the border of its data in memory: of one value with every other border."""
        borders = [wish.border for wish in (*found, *self.wishes.get(data, [])) if wish.has_border]
        return pad.mode == "constant" and not any(pad.pad_width[:4]) and all(b == pad.constant_value for b in borders)

    def place(self, region: Region) -> None:
        """Decides the storages of the region's outputs, which are walked together and so have one innermost axis."""
        symbol = region.output
        if symbol in self.sources:
            self._place_view(symbol)
            return
        inners = [wish.inner for output in region.outputs for wish in self.wishes.get(output, [])]
        inner = 1 if 1 in inners else next(iter(inners), self._natural(region))
        dotted = _anchor_kind(region) in (Kind.WINDOW, Kind.ROWS)
        for output in region.outputs:
            if inner is None:
                self.storages[output] = Storage.plain(output.type)
                continue
            storage = Storage.with_inner(output.type, inner, padded_length(output.shape[inner], dotted))
            self.storages[output] = wished_storage(output, storage, self.wishes.get(output, []))

    def _place_view(self, symbol: Symbol) -> None:
        """The storage of a Pad that is the border of its data."""
        if isinstance(symbol.operator, Pad):
            held = self.storages[self.sources[symbol]]
            before, after = symbol.operator.pad_width[::2], symbol.operator.pad_width[1::2]
            self.storages[symbol] = replace(
                held,
                type=symbol.type,
                before=tuple(a - b for a, b in zip(held.before, before, strict=True)),
                after=tuple(a - b for a, b in zip(held.after, after, strict=True)),
            )

    def _natural(self, region: Region) -> int | None:
        """The innermost axis that suits who makes the tensor: what it computes along, or that of what it reads."""
        symbol = region.output
        match _anchor_kind(region):
            case Kind.WINDOW:
                return 1
            case Kind.ROWS:
                return symbol.type.rank - 1
            case Kind.ELEMENTWISE | Kind.GATHER:
                if any(output in self.graph.outputs for output in region.outputs):
                    return None
                held = [
                    self.storages[s] for s in region.inputs if s in self.storages and s.type.rank == symbol.type.rank
                ]
                return next((storage.inner for storage in held if storage.inner is not None), None)
        return None


def padded_length(count: int, dotted: bool = False) -> int:
    """To how many elements an innermost axis is padded: to whole vectors, or, if no dots store to it, few to a dot."""
    multiple = DOT_DEPTH if count <= FEW and not dotted else VECTOR
    return -(-count // multiple) * multiple


def wished_storage(symbol: Symbol, storage: Storage, wishes: Sequence[Wish]) -> Storage:
    """`storage` with the dtype and the borders of those of `wishes` that want its innermost axis."""
    for wish in reversed([wish for wish in wishes if wish.inner == storage.inner]):
        if wish.dtype:
            storage = replace(storage, dtype=wish.dtype, offset=wish.offset)
        if wish.has_border:
            before = tuple(map(max, storage.before, wish.before))
            storage = replace(
                storage,
                before=before,
                after=tuple(map(max, storage.after, wish.after)),
                border=wish.border,
                bordered=True,
            )
    return storage


def serves(storage: Storage, wish: Wish) -> bool:
    """Whether a reader with this wish can read the storage."""
    if storage.inner != wish.inner or (wish.dtype and (storage.dtype, storage.offset) != (wish.dtype, wish.offset)):
        return False
    if not wish.has_border:
        return True
    enough = all(a >= b for a, b in zip((*storage.before, *storage.after), (*wish.before, *wish.after), strict=True))
    return enough and storage.border == wish.border


def _anchor_kind(region: Region) -> Kind:
    kinds = [kind_of(symbol) for symbol in region.symbols]
    return next((kind for kind in kinds if kind is not Kind.ELEMENTWISE), Kind.ELEMENTWISE)


def _wider(wish: Wish, before: Sequence[int], after: Sequence[int], border: float) -> Wish:
    """The wish of a Pad's reader as one of the Pad's data."""
    return replace(
        wish,
        before=tuple(a + b for a, b in zip(wish.before or (0,) * len(before), before, strict=True)),
        after=tuple(a + b for a, b in zip(wish.after or (0,) * len(after), after, strict=True)),
        border=border,
    )
