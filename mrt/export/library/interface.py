"""The interface of a library in C: which arguments its functions take, and the tables by which they work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import numpy as np

from mrt.backend import NativeCode
from mrt.export.c_text import C_TYPES, text_of
from mrt.runtime import MAIN, REAL, KeptState
from mrt.symbol import Array, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization

TYPES = {**C_TYPES, "float32": "float", "float64": "double", "int64": "int64_t"}
"""The C type of an argument's elements, by dtype."""
RUNTIME = "runtime.c"
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""TVM's numbers of kinds of elements, by NumPy's letter."""
_BYTES_PER_LINE = 24


@dataclass(frozen=True)
class Argument:
    """A pointer that a function takes. name: of it, `about` of the tensor. size: elements of a sample, or of all."""

    name: str
    about: str
    type: TensorType
    size: int


@dataclass(frozen=True, eq=False)
class Interface:
    """What C calls of a network's machine code."""

    name: str
    digest: str
    code: NativeCode

    @property
    def batch(self) -> int:
        return self.code.metadata.made_from.batch

    @cached_property
    def fed(self) -> list[int]:
        """The places of the inputs that are no states."""
        kept = {state.input for state in self.code.metadata.states}
        inputs = self.code.functions[MAIN].inputs
        return [place for place, (name, _) in enumerate(inputs) if name not in kept]

    def given(self, which: str) -> list[Argument]:
        """What a function reads."""
        inputs = self.code.functions[which].inputs
        return [
            Argument(f"input{i}", name, type, type.size // self.batch)
            for i, (name, type) in enumerate(inputs[place] for place in self.fed)
        ]

    def results(self, which: str) -> list[int]:
        """The places of the outputs that are no states."""
        kept = [_place(state, which) for state in self.code.metadata.states]
        return [place for place in range(len(self.code.functions[which].outputs)) if place not in kept]

    def wanted(self, which: str) -> list[Argument]:
        """What a function writes."""
        outputs = self.code.functions[which].outputs
        return [
            Argument(
                f"output{i}",
                outputs[place][0],
                outputs[place][1],
                outputs[place][1].size // (self.batch if self.has_batch(which, place) else 1),
            )
            for i, place in enumerate(self.results(which))
        ]

    def has_batch(self, which: str, place: int) -> bool:
        metadata = self.code.metadata
        return place not in (metadata.constants if which == MAIN else metadata.final_constants)

    def prototype(self, which: str, function: str) -> str:
        arguments = [f"const {TYPES[each.type.dtype]} *{each.name}" for each in self.given(which)]
        arguments += [f"{TYPES[each.type.dtype]} *{each.name}" for each in self.wanted(which)]
        owner = f"{self.name}_instance *instance, int64_t samples"
        return f"int {self.name}_{function}({', '.join([owner, *arguments])})"

    @property
    def symbols(self) -> list[str]:
        """What the library lets others see."""
        names = ("digest", "create", "destroy", "reset", "run", "run_integers")
        return [f"{self.name}_{each}" for each in names]

    def source(self) -> str:
        """The C behind the header: what runs the machine code, and the tables for it."""
        functions = self.code.functions.values()
        axes = max((len(type.shape) for each in functions for _, type in each.inputs), default=1)
        head = [
            f'#include "{self.name}.h"',
            f"#define BATCH {self.batch}",
            f"#define CONSTANT_BYTES {len(self.code.constants)}",
            f"#define MOST_INPUTS {len(self.code.functions[MAIN].inputs)}",
            f"#define MOST_AXES {max(axes, 1)}",
            f"#define NEEDS_TILES {int(self.code.needs_tiles)}",
        ]
        runtime = files(__package__).joinpath(RUNTIME).read_text(encoding="ascii")
        tables = [line for which in (MAIN, REAL) for line in self._tables(which)]
        calls = ", ".join(f"{which}_facts" for which in (MAIN, REAL))
        found = [f"static const function_facts functions[FUNCTIONS] = {{{calls}}};", "", *self._definitions()]
        return text_of([*head, runtime, *tables, *found])

    def _definitions(self) -> Iterator[str]:
        name = self.name
        yield f'const char {name}_digest[{len(self.digest) + 1}] = "{self.digest}";'
        yield f"{name}_instance *{name}_create(int threads) {{ return ({name}_instance *)create(threads); }}"
        yield f"void {name}_destroy({name}_instance *instance) {{ destroy((instance_type *)instance); }}"
        yield f"void {name}_reset({name}_instance *instance) {{ reset((instance_type *)instance); }}"
        for number, (which, function) in enumerate(((MAIN, "run_integers"), (REAL, "run"))):
            given = ", ".join(each.name for each in self.given(which))
            wanted = ", ".join(each.name for each in self.wanted(which)) or "NULL"
            yield f"{self.prototype(which, function)} {{"
            yield f"  const void *const given[] = {{{given}}};"
            yield f"  void *const wanted[] = {{{wanted}}};"
            yield f"  return run((instance_type *)instance, {number}, samples, given, wanted);"
            yield "}"

    def _tables(self, which: str) -> Iterator[str]:
        """The facts of one function."""
        function, metadata = self.code.functions[which], self.code.metadata
        states = {state.input: i for i, state in enumerate(metadata.states)}
        ends = {_place(state, which): i for i, state in enumerate(metadata.states)}
        results = function.memory.results
        for place, held in enumerate(results):
            if not isinstance(held, int):
                yield from _bytes(f"{which}_constant{place}", held)
        yield from self._states(which)
        rows = [
            _input_row(type, self.batch, states.get(name, -1), entry)
            for (name, type), entry in zip(function.inputs, metadata.inputs, strict=True)
        ]
        yield from _table(f"input_facts {which}_inputs", rows)
        rows = []
        for place, ((_, type), held) in enumerate(zip(function.outputs, results, strict=True)):
            offset, constant = (held, "NULL") if isinstance(held, int) else (0, f"{which}_constant{place}")
            has_batch = self.has_batch(which, place)
            size = _size(type) // (self.batch if has_batch else 1)
            rows.append(f"{offset}, {constant}, {size}, {int(has_batch)}, {ends.get(place, -1)}")
        yield from _table(f"output_facts {which}_outputs", rows)
        yield f"int {function.symbol}(void *, const argument *, int32_t, argument *);"
        memory = function.memory
        counts = f"{len(function.inputs)}, {len(function.outputs)}, {len(states)}"
        places = f"{which}_inputs, {which}_outputs, {which}_states"
        sizes = f"{memory.workspace_bytes}, {memory.output_bytes}"
        yield f"#define {which}_facts {{{function.symbol}, {counts}, {places}, {sizes}}}"

    def _states(self, which: str) -> Iterator[str]:
        entries = {entry.name: entry for entry in self.code.metadata.inputs}
        results, rows = self.code.functions[which].memory.results, []
        for i, state in enumerate(self.code.metadata.states):
            entry = entries[state.input]
            value = entry.filled(np.asarray(state.initial))
            size = value.nbytes
            if (value == value.flat[0]).all():
                value = value.reshape(-1)[:1]
            yield from _bytes(f"{which}_first{i}", value)
            held = results[_place(state, which)]
            offset = f"1, {held}" if state.in_place and isinstance(held, int) else "0, 0"
            rows.append(f"{size}, {which}_first{i}, sizeof {which}_first{i}, {offset}")
        yield from _table(f"state_facts {which}_states", rows or ["0, NULL, 0, 0, 0"])


def _place(state: KeptState, which: str) -> int:
    return state.output if which == MAIN else state.final_output


def _input_row(type: TensorType, batch: int, state: int, entry: TensorQuantization) -> str:
    dtype = np.dtype(type.dtype)
    limits = np.iinfo({"f": "int32", "b": "uint8"}.get(dtype.kind, dtype.name))
    is_checked = dtype.kind == "f" or entry.lo > limits.min or entry.hi < limits.max
    shape = ", ".join(map(str, type.shape))
    facts = f"{_CODES[dtype.kind]}, {8 * dtype.itemsize}, {len(type.shape)}, {{{shape}}}, {_size(type) // batch}"
    return f"{facts}, {state}, INT64_C({entry.lo}), INT64_C({entry.hi}), {int(is_checked)}"


def _size(type: TensorType) -> int:
    return type.size * np.dtype(type.dtype).itemsize


def _table(declared: str, rows: Iterable[str]) -> list[str]:
    return [f"static const {declared}[] = {{", *(f"  {{{row}}}," for row in rows), "};"]


def _bytes(name: str, value: Array) -> Iterator[str]:
    content = np.ascontiguousarray(value).tobytes()
    yield f"static const unsigned char {name}[] = {{"
    for start in range(0, len(content), _BYTES_PER_LINE):
        yield "  " + ", ".join(map(str, content[start : start + _BYTES_PER_LINE])) + ","
    yield "};"
