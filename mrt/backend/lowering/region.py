"""From a region to a PrimFunc: its computes on the tensors as they lie in memory, stored as its output shall lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tvm import te, tirx

from mrt.backend.fusion.regions import Region, walked_as_one
from mrt.backend.kernels.generic.changed_rows import changing_rows
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.rows import stored_rows
from mrt.backend.layout.layouts import Layouts
from mrt.backend.lowering.schedule import Request, schedule
from mrt.backend.machine import Machine, one_line
from mrt.backend.memory.border import fill_borders, move_into_memory
from mrt.backend.memory.storage import Storage, View, Walk
from mrt.backend.operators.update_rows import rows_along
from mrt.backend.schedule.serial import with_threads_that_pay, without_threads
from mrt.backend.schedule.tilings import Choose, Scheduler, schedule_by_rule
from mrt.backend.te.operands import Operand, Packed
from mrt.backend.te.registry import (
    Kind,
    find_compute,
    is_view,
    kind_of,
    random_access_inputs,
    unpadded_inputs,
    updated_input,
    view_of,
)
from mrt.backend.tir.expressions import Expression, Tensor, constant, dtype_of
from mrt.errors import CompilationError
from mrt.symbol import Refusal, Symbol

Report = Callable[[Sequence[Refusal]], None]


@dataclass(frozen=True, eq=False)
class Copy:
    """A tensor as it lies elsewhere for a reader that its own storage does not serve."""

    symbol: Symbol
    storage: Storage


@dataclass(frozen=True, eq=False)
class LoweredRegion:
    """A region with all that decides its code.

    tensors: what holds each input that is no parameter. packed: the parameters, by reader and place. storages: how the
    outputs shall lie. replaced: the input over which the last output is written (see `in_place`).
    """

    region: Region
    layouts: Layouts
    tensors: Mapping[Symbol, Symbol | Copy]
    packed: Mapping[tuple[Symbol, int], Packed]
    storages: tuple[Storage, ...]
    replaced: Symbol | None = None

    def key(self) -> Any:
        """Equal keys have equal functions."""
        place = self.region.places
        owners = list(dict.fromkeys(self.tensors.values()))
        read = tuple(
            (place[s], owners.index(held), *((held.storage,) if isinstance(held, Copy) else self._location(s)))
            for s, held in self.tensors.items()
        )
        parameters = tuple((place[s], i, p.form, p.storages) for (s, i), p in self.packed.items())
        return (
            self.region.structure,
            read,
            parameters,
            self.storages,
            None if self.replaced is None else place[self.replaced],
        )

    def _location(self, source: Symbol) -> tuple[object, ...]:
        return self.layouts.memory(source), self.layouts.view_path(source)

    def _view(self, source: Symbol, held: Symbol | Copy, tensor: Tensor) -> View:
        return self.layouts.view(source, tensor, held.storage if isinstance(held, Copy) else None)

    def refusals(self, machine: Machine) -> tuple[Refusal, ...]:
        """What schedules and kernel passes left alone in the function, each with the reason."""
        found: list[Refusal] = []
        self.function(machine, report=found.extend)
        return tuple(found)

    def function(
        self, machine: Machine, scheduler: Scheduler = schedule_by_rule, report: Report = lambda refusals: None
    ) -> Any:
        """The scheduled PrimFunc, taking the tensors, the parameters and the results; CompilationError if TVM fails.

        The tensor that is replaced is the last result's. report: told what was left alone whenever it is scheduled.
        """
        output, held, parameters = self.region.output, self._held(), self._parameters()
        guarded = not self._fills_padding()
        values = self._values(held, parameters, guarded)
        turns = max((view.turns for view in values.values() if isinstance(view, View)), default=1)
        walk = Walk.over(self.storages, self._may_be_flat(), turns)
        try:
            inputs = [*held.values(), *(tensor for tensors in parameters.values() for tensor in tensors)]
            function = storing_function(
                inputs, [values[each] for each in self.region.outputs], self.storages, walk, guarded
            )
            replaced = None if self.replaced is None else list(held).index(self.replaced)
            if replaced is not None and updated_input(output) is not None:
                return changing_rows(function, replaced, rows_along(output.inputs[0].shape))
            return scheduled_function(
                function,
                self.storages,
                walk,
                machine,
                walked=walked_as_one(self.region) if self._all_plain() else 1,
                by_rows=self.region.stored is not None,
                replaced=replaced,
                scheduler=scheduler,
                report=report,
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise CompilationError(f"{output.name} ({output.op}): TVM fails: {one_line(error)}") from error

    def _held(self) -> dict[Symbol | Copy, Tensor]:
        """The memory of the tensors that are read."""
        held: dict[Symbol | Copy, Tensor] = {}
        for i, owner in enumerate(dict.fromkeys(self.tensors.values())):
            storage = owner.storage if isinstance(owner, Copy) else self.layouts.storages[owner]
            held[owner] = te.placeholder(storage.shape, storage.dtype, f"input{i}")
        return held

    def _parameters(self) -> dict[tuple[Symbol, int], list[Tensor]]:
        """The arrays of each packed input; none of one that is computed."""
        number = count()
        return {
            at: [te.placeholder(each.shape, each.dtype, f"parameter{next(number)}") for each in packed.storages]
            for at, packed in self.packed.items()
        }

    def _values(
        self,
        held: Mapping[Symbol | Copy, Tensor],
        parameters: Mapping[tuple[Symbol, int], Sequence[Tensor]],
        guarded: bool,
    ) -> dict[Symbol, Tensor]:
        """All that is read and computed; guarded: see `storing_function`."""
        values: dict[Symbol, Tensor] = {s: self._view(s, owner, held[owner]) for s, owner in self.tensors.items()}
        operands: dict[tuple[Symbol, int], Any] = {}
        for at, packed in self.packed.items():
            reader, index = at
            views = [View.of(*each) for each in zip(parameters[at], packed.storages, strict=True)]
            views = views or [values[reader.inputs[index]]]
            operands[at] = views[0] if packed.form is None else Operand(packed.form, views)
        for symbol in self.region.symbols:
            inputs = [operands.get((symbol, i), values.get(source)) for i, source in enumerate(symbol.inputs)]
            values[symbol] = find_compute(symbol)(symbol, *inputs)
            if symbol in (self.region.stored or ()):
                values[symbol] = stored_rows(values[symbol], self.storages[0].length, guarded)
        return values

    def _may_be_flat(self) -> bool:
        """Whether positions may be walked as one axis.

        What then reads several would have to divide, and TVM not see what is read together.
        """
        dots = [packed.form for packed in self.packed.values() if isinstance(packed.form, DotForm)]
        if self.region.stored is not None or updated_input(self.region.output) is not None:
            return False
        return self._reads_runs() and all(form.flat for form in dots)

    def _all_plain(self) -> bool:
        views = [self._view(s, owner, None) for s, owner in self.tensors.items()]
        return all(view.storage is not None and view.storage.is_plain for view in views)

    def _reads_runs(self) -> bool:
        """Whether nothing is read that is cut out of other positions, which then are told apart."""
        views = [self._view(s, owner, None) for s, owner in self.tensors.items()]
        return all(v.storage is None or v.storage.is_one_run or not v.storage.is_flat for v in views)

    def _fills_padding(self) -> bool:
        """Whether the padding of the innermost axis may be computed like any element.

        It may where everything that is read is as long in memory, or the same for all; dots have lanes of their own.
        """
        storage = self.storages[0]
        inner = storage.inner
        if inner is None or storage.length == storage.type.shape[inner]:
            return True
        dotted: set[Symbol] = set()
        windowed: set[Symbol] = set()
        axis = inner - storage.type.rank
        for symbol in self.region.symbols:
            match kind_of(symbol):
                case Kind.ELEMENTWISE if any(self._varies(symbol, i, axis) for i in unpadded_inputs(symbol)):
                    return False
                case Kind.ELEMENTWISE:
                    continue
                case Kind.REDUCTION | Kind.STEPS if self.region.stored is not None:
                    continue
                case Kind.NORMALIZATION if self.region.stored is not None:
                    dotted |= set(symbol.inputs)
                case Kind.WINDOW | Kind.ROWS if len(symbol.inputs) == 1 or self._form(symbol, 1) is not None:
                    if isinstance(self._form(symbol, 1), DotForm):
                        dotted |= set(symbol.inputs[:2])
                    else:
                        windowed.add(symbol.inputs[0])
                case Kind.GATHER if is_view(symbol) and self._goes_on_behind(symbol, axis, storage.length):
                    continue
                case _:
                    return False
        read = [(self._view(s, owner, None), s in windowed) for s, owner in self.tensors.items() if s not in dotted]
        laid = [
            packed.storages
            for (s, i), packed in self.packed.items()
            if kind_of(s) is Kind.ELEMENTWISE and i not in random_access_inputs(s)
        ]
        read += [(View.of(None, storage), False) for storages in laid for storage in storages]
        return all(_spans(view, axis, storage.length, whole) for view, whole in read)

    def _goes_on_behind(self, cut: Symbol, axis: int, length: int) -> bool:
        """Whether memory holds `length` elements from where a slice begins, along an axis that counts from the last."""
        (source,) = cut.inputs
        if source not in self.tensors:
            return False
        seen = view_of(cut, self._view(source, self.tensors[source], None)).storage
        if seen is None or seen.order[-1] - cut.type.rank != axis:
            return False
        return seen.length + seen.after[axis] >= length

    def _varies(self, reader: Symbol, index: int, axis: int) -> bool:
        """Whether an input is computed, and not the same for all along an axis that counts from the last."""
        shape = reader.inputs[index].shape
        return (reader, index) not in self.packed and len(shape) + axis >= 0 and shape[axis] > 1

    def _form(self, reader: Symbol, index: int) -> Any:
        packed = self.packed.get((reader, index))
        return None if packed is None else packed.form


def _spans(view: View, axis: int, length: int, whole: bool) -> bool:
    """Whether memory holds `length` elements along an axis that counts from the last, or, unless it is read as a whole,
    one for all."""
    rank = len(view.shape)
    if not whole and (rank + axis < 0 or view.shape[axis] == 1):
        return True
    return view.inner is not None and view.inner - rank == axis and view.length >= length


def storing_function(
    inputs: Sequence[Tensor], values: Sequence[Tensor], storages: Sequence[Storage], walk: Walk, guarded: bool = True
) -> Any:
    """The PrimFunc, not scheduled yet, that stores `values` as `storages` say, walked together.

    guarded: the padding is 0 and not computed.
    """

    def element(*places: Expression) -> tuple[Expression, ...]:
        at = walk.logical(places)
        return tuple(_stored(value, at, storage, guarded) for value, storage in zip(values, storages, strict=True))

    made = te.compute(walk.shape, element if len(values) > 1 else lambda *at: element(*at)[0], name="result")
    results = list(made) if len(values) > 1 else [made]
    return move_into_memory(te.create_prim_func([*inputs, *results]), walk, storages)


def scheduled_function(
    function: Any,
    storages: Sequence[Storage],
    walk: Walk,
    machine: Machine,
    *,
    walked: int = 1,
    by_rows: bool = False,
    replaced: int | None = None,
    scheduler: Scheduler = schedule_by_rule,
    report: Report = lambda refusals: None,
) -> Any:
    """What `storing_function` gave, scheduled, with the borders filled.

    walked, by_rows: see `Request`. replaced: the place of the input over which the last value is written. scheduler:
    see `tilings`. report: told what was left alone.
    """

    def scheduled(choose: Choose) -> Any:
        request = Request(function, walk, len(storages), walked, machine, choose, by_rows, replaced is not None)
        result = schedule(request)
        report(result.refusals)
        made = fill_borders(result.made, storages).without_attr("global_symbol")
        if replaced is not None:
            # One parameter for both, since parameters do not overlap; a schedule would take the two for dependent.
            made = made.specialize({made.params[replaced]: made.params[-1]})
        return without_threads(made) if machine.is_serial else with_threads_that_pay(made, machine)

    return scheduler(function, scheduled)


def _stored(value: Tensor, at: Sequence[Expression], storage: Storage, guarded: bool) -> Expression:
    """What memory holds at a logical index."""
    inner, dtype = storage.inner, storage.type.dtype
    found = value(*at)
    if dtype_of(found) != dtype:
        found = found.astype(dtype)
    held = storage.encode(found)
    if inner is not None and storage.length > storage.type.shape[inner]:
        within, nothing = at[inner] < storage.type.shape[inner], constant(storage.offset, storage.dtype)
        if guarded:
            return tirx.if_then_else(within, held, nothing)
        if dtype.startswith("float"):
            # Of padding, a logarithm say is infinite, and a NaN when it is multiplied by a weight of 0.
            return tirx.Select(within, held, nothing)
    return held
