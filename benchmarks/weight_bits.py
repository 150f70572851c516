"""What weights of fewer bits save: products of a matrix with few rows, beside a plain read of as many bytes.

    python benchmarks/weight_bits.py
    python benchmarks/weight_bits.py --data int16 --threads 1,2 --rows 1,4
    python benchmarks/weight_bits.py --data int16 --group 32

A fully connected layer of so many inputs and outputs is compiled with weights of 8, 4, 3 and 2 bits. Its calls find
none of their weights in a cache: they take turns with copies of them that are larger than caches together. In
turns with it runs a loop that does nothing but read as many bytes, by as many threads: what the memory gives. Medians,
since memory is what others use, too.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from command_line import Parser, listed, one_of, whole
from in_turns import machine, row

from mrt.backend.lowering.plan_calls import Call, plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.machine import Machine
from mrt.backend.profile import compiled_functions
from mrt.backend.schedule.tilings import schedule_by_rule
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator

# Behind `mrt.backend`, which loads TVM without PyTorch.
from tvm import runtime, tirx  # isort: skip

DATA: Mapping[str, tuple[int, int]] = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**12), 2**12 - 1)}
"""By dtype: the range of the data. Sums of more bits with 4,096 weights of 8 bits would need more than 32."""
BITS = (8, 4, 3, 2)
FAR = 1 << 26
"""Bytes of all copies of a weight: more than caches hold."""
IN_A_ROW = 5
"""Calls of a subject before those of the next."""
LINE, LANES, AT_ONCE = 64, 16, 8
"""Bytes of a line, as 32-bit elements, and lines that a turn of the read loop takes."""


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--data", type=listed(one_of(list(DATA))), default=["uint8"], help="dtypes, by commas: uint8")
    parser.add_argument("--threads", type=listed(whole(1)), default=[1], help="by commas: 1")
    parser.add_argument("--rows", type=listed(whole(1)), default=[1], help="of the data, by commas: 1")
    parser.add_argument("--bits", type=listed(whole(2)), default=list(BITS), help="of weights, by commas: 8,4,3,2")
    parser.add_argument("--size", type=whole(16), default=4096, help="inputs, and outputs: 4096")
    parser.add_argument("--group", type=whole(0), default=0, help="inputs that share a scale, 0 for all: 0")
    parser.add_argument("--cpu", default="native", help="which LLVM makes code for: native")
    parser.add_argument("--seconds", type=float, default=5.0, help="in which all are measured in turns: 5")
    arguments = parser.parse_args()
    subjects = [
        Subject.of(data, bits, rows, threads, arguments)
        for data in arguments.data
        for threads in arguments.threads
        for rows in arguments.rows
        for bits in arguments.bits
    ]
    measure(subjects, arguments.seconds)
    print(f"{machine()}\n")
    print(row(["data", "threads", "rows", "bits", "MB", "µs", "of a plain read's rate", "times as fast as 8 bits"]))
    print(row(["---"] * 8))
    base: dict[tuple[object, ...], float] = {}
    for each in subjects:
        taken, read = (float(np.median(times)) for times in (each.times, each.reads))
        base.setdefault(each.what[:3], taken)
        rates = [f"{read / taken:.0%}", f"{base[each.what[:3]] / taken:.2f}"]
        print(row([*map(str, each.what), f"{each.size / 1e6:.1f}", f"{taken * 1e6:.0f}", *rates]))


@dataclass(eq=False)
class Subject:
    """A layer and the loop that reads as many bytes.

    what: data, threads, rows, bits. size: bytes of the weights. calls, loops: each with weights of its own.
    """

    what: tuple[Any, ...]
    size: int
    calls: Sequence[Callable[[], None]]
    loops: Sequence[Callable[[], None]]

    def __post_init__(self) -> None:
        self.times: list[float] = []
        self.reads: list[float] = []

    @classmethod
    def of(cls, data: str, bits: int, rows: int, threads: int, options: Namespace) -> Subject:
        target, size = Machine.of({"kind": "llvm", "mcpu": options.cpu, "threads": threads}), options.size
        graph, known = layer(data, bits, rows, size, options.group), {"x": Interval.of(*DATA[data], (rows, size))}
        call, function = compiled(graph, known, target)
        given = [_given(each, call) for each in call.arguments]
        place = max(range(len(given)), key=lambda place: given[place].nbytes)
        weights = given[place]
        results = [np.zeros(storage.shape, storage.dtype) for storage in call.storages]
        copies = max(2, FAR // weights.nbytes)
        read, total = read_loop(weights.nbytes // LINE, threads, target), np.zeros((threads, AT_ONCE * LANES), np.int32)
        others = [runtime.tensor(each) for each in (*given, *results, total)]

        def with_weights() -> tuple[Callable[[], None], Callable[[], None]]:
            held, lines = runtime.tensor(weights), runtime.tensor(weights.reshape(-1, LINE).view(np.int32))
            taken = [*others[:place], held, *others[place + 1 : -1]]
            return lambda: function(*taken), lambda: read(lines, others[-1])

        made = [with_weights() for _ in range(copies)]
        return cls((data, threads, rows, bits), weights.nbytes, *zip(*made, strict=True))


def measure(subjects: Sequence[Subject], seconds: float) -> None:
    """Some calls of each subject in turns; the first of them finds threads asleep and does not count."""
    end, turn = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        for each in subjects:
            for calls, times in ((each.calls, each.times), (each.loops, each.reads)):
                _seconds(calls[-1])
                times.extend(_seconds(calls[(turn + i) % len(calls)]) for i in range(IN_A_ROW))
        turn += IN_A_ROW


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def layer(data: str, bits: int, rows: int, size: int, group: int = 0) -> Graph:
    """A fully connected layer whose result is brought to int8.

    group: inputs whose weights have a scale of their own, as quantization writes them; 0 for one scale of all.
    """
    random, builder = np.random.default_rng(0), GraphBuilder()

    def apply(name: str, *inputs: Symbol, **attributes: Any) -> Symbol:
        return builder.apply(find_operator(name)(**attributes), inputs)

    x = builder.input("x", TensorType((rows, size), data))
    most = 2 ** (bits - 1) - 1
    terms = []
    for begin in range(0, size, group or size):
        values = random.integers(-most, most, (size, group or size), endpoint=True).astype(np.int8)
        part = apply("slice_axis", x, axis=1, begin=begin, end=begin + group) if group else x
        sums = apply("FullyConnected", part, builder.parameter("weight", values), num_hidden=size, no_bias=True)
        if group:
            factors = random.integers(8, 15, (1, size), endpoint=True).astype(np.int8)
            scaled = apply("broadcast_mul", sums, builder.parameter("factors", factors))
            sums = apply("right_shift", scaled, builder.parameter("group_shift", np.full((1, 1), 4, np.int8)))
        terms.append(sums)
    sums = apply("add_n", *terms) if group else terms[0]
    shifted = apply("right_shift", sums, builder.parameter("shift", np.full((1, 1), 16, np.int8)))
    return builder.graph([apply("Cast", apply("clip", shifted, a_min=-127.0, a_max=127.0), dtype="int8")])


def compiled(graph: Graph, known: Mapping[str, Interval], target: Machine) -> tuple[Call, Callable[..., None]]:
    """The call that multiplies, and its function."""
    made: dict[Any, tuple[str, Any]] = {}

    def add_function(key: Any, name: str, make: Any) -> str:
        return made.setdefault(key, (f"{name}_{len(made)}", make))[0]

    calls = plan_calls(graph, target, add_function, {}, known).calls
    (call,) = (call for call in calls if call.lowered and call.lowered.packed)
    functions = {name: make(schedule_by_rule) for name, make in made.values() if name == call.function}
    return call, compiled_functions(functions, target)[call.function]


def _given(argument: Any, call: Call) -> Array:
    """What the function is called with: numbers by chance for the data."""
    if not isinstance(argument, (Symbol, Copy)):
        return np.asarray(argument.value.numpy())
    if call.lowered is None:
        raise ValueError("a copy multiplies nothing")
    storage = argument.storage if isinstance(argument, Copy) else call.lowered.layouts.storages[argument]
    return np.random.default_rng(1).integers(0, 100, storage.shape).astype(storage.dtype)


def read_loop(lines: int, threads: int, target: Machine) -> Callable[..., None]:
    """A function of [lines, 16] and [threads, 128] that adds up the lines, each thread a part of them in a row."""
    share = lines // (threads * AT_ONCE)
    memory = tirx.decl_buffer((lines, LANES), "int32", "memory")
    totals = tirx.decl_buffer((threads, AT_ONCE * LANES), "int32", "totals")
    thread, turn = tirx.Var("thread", "int32"), tirx.Var("turn", "int32")

    def total(place: int) -> list[Any]:
        return [thread, tirx.Ramp(place * LANES, 1, LANES)]

    zero = [tirx.BufferStore(totals, tirx.Broadcast(tirx.const(0, "int32"), LANES), total(i)) for i in range(AT_ONCE)]
    added = [
        tirx.BufferLoad(totals, total(i))
        + tirx.BufferLoad(memory, [(thread * share + turn) * AT_ONCE + i, tirx.Ramp(0, 1, LANES)])
        for i in range(AT_ONCE)
    ]
    step = tirx.SeqStmt([tirx.BufferStore(totals, value, total(i)) for i, value in enumerate(added)])
    loop = tirx.For(turn, 0, share, tirx.ForKind.SERIAL, step)
    kind = tirx.ForKind.PARALLEL if threads > 1 else tirx.ForKind.SERIAL
    body = tirx.For(thread, 0, threads, kind, tirx.SeqStmt([*zero, loop]))
    function = tirx.PrimFunc([memory, totals], body).with_attr("tirx.noalias", True)
    return compiled_functions({"read": function}, target)["read"]


if __name__ == "__main__":
    main()
