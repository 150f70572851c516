"""Choosing how every tensor of a graph lies in memory from the layout requests of its readers.

A convolution reads channels innermost, in the dtype of its dots, with its border around; whoever makes the tensor
writes it so. A reader that it does not serve gets a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mrt.backend.fusion.regions import Region
from mrt.backend.layout.layouts import Layouts
from mrt.backend.machine import Machine
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import VECTOR, Storage, padded_length
from mrt.backend.te.registry import (
    Kind,
    is_view,
    joined_axis,
    keeps_order,
    kind_of,
    layout_request_of,
    propagated_request,
    updated_input,
    view_of,
)
from mrt.symbol import Graph, Interval, Symbol


def plan_layouts(
    graph: Graph, regions: Sequence[Region], machine: Machine, bounds: Mapping[str, Interval], as_they_lie: bool = False
) -> Layouts:
    """How the tensors that regions exchange lie in memory; those of the graph's inputs lie as the user gives them.

    bounds: of the graph's tensors, by name. as_they_lie: whether outputs are taken in any layout, so that theirs are
    chosen like those of other tensors.
    """
    makers = {output: region for region in regions for output in region.outputs}
    plan = _Plan(graph, machine, bounds, makers, as_they_lie)
    for region in regions:
        plan.collect(region)
    for region in reversed(regions):
        plan.find_alias(region)
        plan.join_parts(region)
    for symbol in graph.inputs:
        plan.storages[symbol] = Storage.plain(symbol.type)
    for region in regions:
        plan.place(region)
    return plan.layouts


def read_along(region: Region, graph: Graph) -> dict[Symbol, int]:
    """What a region reads element by element along an axis that it cannot choose, which is wanted innermost.

    That is the last axis of what is computed row by row, and that of the lanes of sums with which other tensors are
    combined. Data that lies otherwise is copied.
    """
    output, kind = region.output, _anchor_kind(region)
    if kind not in (Kind.WINDOW, Kind.ROWS):
        return {}
    axis = _axis_of_lanes(kind, output)
    length = max(symbol.shape[axis] for symbol in region.symbols if symbol.type.rank == output.type.rank)
    found = {}
    for source in region.inputs:
        is_alike = source.type.rank == output.type.rank and source.shape[axis] == length
        is_computed = graph.value(source) is None and not source.type.is_float
        if is_alike and is_computed and (region.stored is not None or _is_read_in_place(source, region)):
            found[source] = axis
    return found


def _is_read_in_place(source: Symbol, region: Region) -> bool:
    """Whether each element of the output depends on one of `source` at most, that at its own place."""
    readers = (symbol for symbol in region.symbols if source in symbol.inputs)
    return source.shape == region.output.shape and all(kind_of(reader) is Kind.ELEMENTWISE for reader in readers)


def _axis_of_lanes(kind: Kind, output: Symbol) -> int:
    """The axis along which sums over windows or rows are vectors."""
    return 1 if kind is Kind.WINDOW else output.type.rank - 1


@dataclass(eq=False)
class _Plan:
    graph: Graph
    machine: Machine
    bounds: Mapping[str, Interval]
    makers: Mapping[Symbol, Region]
    as_they_lie: bool
    requests: dict[Symbol, list[LayoutRequest]] = field(default_factory=dict)
    aliased: dict[Symbol, Symbol] = field(default_factory=dict)
    storages: dict[Symbol, Storage] = field(default_factory=dict)
    concats: dict[Symbol, Symbol] = field(default_factory=dict)
    copied: dict[Symbol, str] = field(default_factory=dict)
    parts: dict[Symbol, list[Symbol]] = field(default_factory=dict)
    """What is written in the memory of a Concat, each by a function of its own."""

    @property
    def layouts(self) -> Layouts:
        return Layouts(self.storages, self.aliased, self.requests, self.concats, self.copied)

    def collect(self, region: Region) -> None:
        """Collects the layout requests of the region."""
        for symbol in region.symbols:
            for index, source in enumerate(symbol.inputs):
                if source not in region.inputs:
                    continue
                request = layout_request_of(symbol, index, self.graph, self.bounds, self.machine)
                if request is not None:
                    self.requests.setdefault(source, []).append(request)
        for source, axis in read_along(region, self.graph).items():
            self.requests.setdefault(source, []).append(LayoutRequest(axis))

    def find_alias(self, region: Region) -> None:
        """Lets what moves elements only be read from its data's memory, where that serves all requests."""
        symbol = region.output
        if len(region.symbols) != 1 or not is_view(symbol) or symbol in self.concats:
            return
        found = self.requests.get(symbol) or ([LayoutRequest(None)] if keeps_order(symbol) else [])
        passed = [propagated_request(symbol, request) for request in found]
        refusal = self._why_moved(symbol, passed)
        if not refusal:
            self.aliased[symbol] = symbol.inputs[0]
            refusal = self._why_not_together(self.layouts.owner(symbol))
        if refusal:
            self.aliased.pop(symbol, None)
            self.copied[symbol] = refusal
            return
        self._request_around(symbol.inputs[0], [request for request in passed if isinstance(request, LayoutRequest)])

    def _request_around(self, symbol: Symbol, requests: Sequence[LayoutRequest]) -> None:
        """Adds requests to a tensor, and to the Concat in whose memory it is written."""
        self.requests[symbol] = [*self.requests.get(symbol, []), *requests]
        while symbol in self.concats:
            symbol = self.concats[symbol]
            self.requests[symbol] = [*self.requests.get(symbol, []), *requests]

    def _agree(self, symbol: Symbol, requests: Sequence[LayoutRequest]) -> bool:
        """Whether all borders requested around the memory of `symbol`, by `requests` too, have one value."""
        return len(_borders([*self.requests.get(self.layouts.owner(symbol), []), *requests])) < 2

    def _why_moved(self, symbol: Symbol, passed: Sequence[LayoutRequest | str]) -> str:
        """Why `symbol` is not read from the memory of its data.

        passed: the requests of its readers as ones of its data, or why there are none.
        """
        if symbol in self.graph.outputs:
            return "it is an output of the graph"
        if symbol.inputs[0].is_variable:
            return "its data is not computed"
        if not passed:
            return "no reader requests a layout"
        refusals = [refusal for refusal in passed if isinstance(refusal, str)]
        if refusals:
            return refusals[0]
        fits = self._agree(symbol.inputs[0], [request for request in passed if isinstance(request, LayoutRequest)])
        return "" if fits else "borders of several values are needed around it"

    def join_parts(self, region: Region) -> None:
        """Lets the parts of a lone Concat of channels be written where they belong in its memory."""
        symbol = region.output
        axis = joined_axis(symbol)
        if axis is None:
            return
        refusal, root = self._why_copied(region, axis), self.layouts.owner(symbol)
        if not refusal:
            before = self.parts.get(root, [])
            self.concats |= dict.fromkeys(symbol.inputs, symbol)
            self.parts[root] = [*(part for part in before if part is not symbol), *symbol.inputs]
            refusal = self._why_not_together(root)
            if refusal:
                self.parts[root] = before
                for part in symbol.inputs:
                    del self.concats[part]
        if refusal:
            self.copied[symbol] = refusal
            return
        self._request_around(symbol, self._requests_of_parts(symbol))

    def _why_not_together(self, root: Symbol) -> str:
        """Why the parts in the memory of a Concat cannot be: what one function reads and writes must not overlap."""
        for part in self.parts.get(root, []):
            if any(self.layouts.owner(source) is root for source in self.makers[part].inputs):
                return f"{part.name} is made of another part"
        return ""

    def _why_copied(self, region: Region, axis: int) -> str:
        symbol = region.output
        if len(region.symbols) > 1:
            return "what follows is computed together with it"
        found = [request for request in self.requests.get(symbol, []) if request.inner is not None]
        if (not found and symbol not in self.concats) or any(request.inner != axis for request in found):
            return f"its readers do not request axis {axis} innermost"
        if len(set(symbol.inputs)) < len(symbol.inputs):
            return "it reads one tensor twice"
        if not self._agree(symbol, self._requests_of_parts(symbol)):
            return "borders of several values are needed around it"
        for part in symbol.inputs:
            refusal = self._why_apart(part, symbol, axis)
            if refusal:
                return f"{part.name} {refusal}"
        return ""

    def _requests_of_parts(self, symbol: Symbol) -> list[LayoutRequest]:
        """The requests to the parts of a Concat."""
        return [request for part in symbol.inputs for request in self.requests.get(part, [])]

    def _why_apart(self, part: Symbol, joined: Symbol, axis: int) -> str:
        """Why a part of a Concat is not written into its memory."""
        if part not in self.makers:
            return "is not computed"
        maker = self.makers[part]
        if part in self.graph.outputs or len(maker.outputs) > 1:
            return "is also an output" if part in self.graph.outputs else "is computed together with others"
        if part in self.aliased or part in self.concats:
            return "lies in the memory of another tensor"
        if part.dtype != joined.dtype or (part is not joined.inputs[-1] and part.shape[axis] % VECTOR):
            return f"has {part.shape[axis]} channels of {part.dtype}, not whole vectors of {joined.dtype}"
        return "" if self._inner(maker) == axis else f"is made with another axis than {axis} last"

    def place(self, region: Region) -> None:
        """Decides the storages of the region's outputs, which are walked together and so have one innermost axis."""
        symbol = region.output
        if symbol in self.aliased:
            self._place_view(symbol)
            return
        if symbol in self.concats:
            self._place_part(symbol)
            return
        if symbol in self.storages:
            return
        inner = None if updated_input(symbol) is not None else self._inner(region)
        dotted = _anchor_kind(region) in (Kind.WINDOW, Kind.ROWS)
        for output in region.outputs:
            if inner is None:
                self.storages[output] = Storage.plain(output.type)
                continue
            storage = Storage.with_inner(output.type, inner, padded_length(output.shape[inner], dotted))
            self.storages[output] = requested_storage(storage, self._held_requests(output))

    def _held_requests(self, symbol: Symbol) -> list[LayoutRequest]:
        """The requests to the memory of a tensor, without dtypes that do not hold all of it.

        Who asked may read a part, of which more is known.
        """
        known, requests = self.bounds[symbol.name], self.requests.get(symbol, [])
        return [each if each.holds(symbol.type, known) else replace(each, dtype="", offset=0) for each in requests]

    def _place_view(self, symbol: Symbol) -> None:
        """The storage of what is read from the memory of its data, if one describes it."""
        data = self.layouts.view(self.aliased[symbol])
        storage = view_of(symbol, data).storage
        if storage is not None:
            self.storages[symbol] = storage

    def _place_part(self, part: Symbol) -> None:
        """The storage of a part of a Concat, which may be one itself: so many channels of its memory."""
        inside = []
        while part in self.concats and part not in self.storages:
            inside.append(part)
            part = self.concats[part]
        for each in reversed(inside):
            whole = self.concats[each]
            axis = joined_axis(whole)
            if axis is None:
                raise ValueError(f"{whole.name} joins nothing")
            if whole not in self.storages:
                storage = Storage.with_inner(whole.type, axis, padded_length(whole.shape[axis], True))
                self.storages[whole] = requested_storage(storage, self._held_requests(whole))
            begin = [0] * each.type.rank
            begin[axis] = sum(other.shape[axis] for other in whole.inputs[: whole.inputs.index(each)])
            self.storages[each] = self.storages[whole].part(each.type, begin)

    def _inner(self, region: Region) -> int | None:
        """The innermost axis: that of the lanes of whoever makes the tensor, or, where it has none, one requested."""
        natural = self._natural(region)
        if _anchor_kind(region) in (Kind.WINDOW, Kind.ROWS):
            return natural
        requests = [request for output in region.outputs for request in self.requests.get(output, [])]
        inners = [request.inner for request in requests if request.inner is not None]
        return 1 if 1 in inners else next(iter(inners), natural)

    def _natural(self, region: Region) -> int | None:
        """The innermost axis that suits who makes the tensor: what it computes along, or that of what it reads."""
        symbol = region.output
        match _anchor_kind(region):
            case Kind.WINDOW | Kind.ROWS as kind:
                return _axis_of_lanes(kind, symbol)
            case Kind.ELEMENTWISE | Kind.GATHER:
                if not self.as_they_lie and any(output in self.graph.outputs for output in region.outputs):
                    return None
                held = [
                    self.storages[s] for s in region.inputs if s in self.storages and s.type.rank == symbol.type.rank
                ]
                return next((storage.inner for storage in held if storage.inner is not None), None)
        return None


def requested_storage(storage: Storage, requests: Sequence[LayoutRequest]) -> Storage:
    """`storage` with the dtype and the borders of those `requests` that have its innermost axis."""
    for request in reversed([request for request in requests if request.inner == storage.inner]):
        if request.dtype:
            storage = replace(storage, dtype=request.dtype, offset=request.offset)
        if request.has_border:
            before = tuple(map(max, storage.before, request.before))
            storage = replace(
                storage,
                before=before,
                after=tuple(map(max, storage.after, request.after)),
                border=request.border,
                bordered=True,
            )
    return storage


def _borders(requests: Sequence[LayoutRequest]) -> set[float]:
    """The values that are to stand around one tensor."""
    return {request.border for request in requests if request.has_border}


def _anchor_kind(region: Region) -> Kind:
    if region.stored is not None:
        return Kind.ROWS
    kinds = [kind_of(symbol) for symbol in region.symbols]
    return next((kind for kind in kinds if kind is not Kind.ELEMENTWISE), Kind.ELEMENTWISE)
