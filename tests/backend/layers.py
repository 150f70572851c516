"""Chains of layers as integer networks have them, and the CPUs that their kernels are run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, TypeVar

import numpy as np
from compiled import Bundle
from stand_ins import X86, can_stand_in, lacks

from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.lowering.plan_calls import plan_calls
from mrt.backend.machine import Machine
from mrt.backend.rewrites.known_bounds import known_bounds
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.convolution import Convolution

T = TypeVar("T")
TARGETS: dict[str, dict[str, Any]] = {
    cpu: {"kind": "llvm", "mcpu": cpu}
    for cpu in ("x86-64", "x86-64-v3", "x86-64-v4", "alderlake", "cascadelake", "sapphirerapids")
}
"""No vectors of 256 bits; AVX2; AVX-512 without products of bytes; those in 256 bits; those in 512."""


def runnable() -> list[str]:
    """The targets whose instructions this machine has, or others stand in for."""
    return [cpu for cpu in TARGETS if can_stand_in() or not lacks(Machine.of({**TARGETS[cpu], "mtriple": X86}))]


BYTES = "uint8", "int8"
DTYPES = "uint8", "int16", "int8", "int16"
"""Of data, that of one layer after the other: each CPU begins with another one (see the fixture `turn`)."""
EMULATED: dict[str, dict[str, Any]] = {
    "neoverse-n1": {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "threads": 1},
    "cortex-a57": {"mtriple": "aarch64-linux-gnu", "threads": 2},
}
"""By the CPU that is emulated: with products of bytes and without."""


def in_turn(values: Sequence[T], turn: int) -> Iterator[T]:
    """The values again and again, from number `turn` on."""
    return islice(cycle(values), turn % len(values), None)


ENDINGS = {
    "relu": (0.0, 255.0, "uint8"),
    "relu of few bits": (0.0, 100.0, "uint8"),
    "relu of int8": (0.0, 127.0, "int8"),
    "signed": (-127.0, 127.0, "int8"),
    "all of int8": (-128.0, 127.0, "int8"),
    "residual": (-127.0, 127.0, "int8"),
    "table": (-127.0, 127.0, "int8"),
    "table of few": (-100.0, 90.0, "int8"),
    "table of relu": (0.0, 250.0, "uint8"),
    "moved": (0.0, 255.0, "uint8"),
    "moved table": (-128.0, 127.0, "int8"),
}
"""What sums are clipped and cast to before they are stored, or looked up."""
ENDINGS_IN_TURN = {
    f"from {next(islice(ENDINGS, begin, None))} on": list(islice(cycle(ENDINGS), begin, begin + 5))
    for begin in range(0, len(ENDINGS), 4)
}
"""Five layers' each, together all of them, also of the first four."""


class Layers(Bundle):
    """Chains as an integer network has them, so that tensors lie as their readers request."""

    def parameter_of(self, shape: tuple[int, ...], dtype: str, lo: int, hi: int) -> Symbol:
        return self.parameter(self.integers(shape, dtype, lo, hi))

    def requantized(self, data: Symbol, dtype: str = "uint8") -> Symbol:
        """Bias, multiplier, shift, clip and cast of every output channel."""
        shape = (1, data.shape[1], *(1,) * (data.type.rank - 2))
        limits = {"uint8": (0.0, 255.0), "int8": (-127.0, 127.0), "int16": (-32767.0, 32767.0)}[dtype]
        biased = self.hidden("broadcast_add", data, self.parameter_of(shape, "int16", -3000, 3000))
        scaled = self.hidden("broadcast_mul", biased, self.parameter_of(shape, "int8", 1, 5))
        shifted = self.hidden("right_shift", scaled, self.parameter_of(shape, "int8", 0, 8))
        clipped = self.hidden("clip", shifted, a_min=limits[0], a_max=limits[1])
        return self.hidden("Cast", clipped, dtype=dtype)

    def bytes_of(self, sums: Symbol, most: int, ending: str = "relu") -> Symbol:
        """Sums of up to `most`, scaled by 16 bits for every channel, and stored as bytes as `ending` says."""
        bits, each = min(int(np.log2(2**31 / most)), 15), (1, sums.shape[1], *(1,) * (sums.type.rank - 2))
        factor = self.parameter_of(each, "int16", 2 ** (bits - 1), 2**bits - 1)
        shift = int(np.log2(most)) + bits - 8
        scaled = self.hidden("broadcast_mul", sums, factor)
        value = self.hidden("right_shift", scaled, self.parameter_of(each, "int8", shift - 2, shift))
        if ending == "residual":
            batch, filters, *lengths = value.shape
            data = self.input(self.integers((batch, 4, *lengths), "int8"))
            other = self.requantized(self.convolution(data, filters, (1,) * len(lengths)), "int8")
            value = self.hidden("clip", value, a_min=-200.0, a_max=200.0)
            value = self.hidden("elemwise_add", self.hidden("Cast", value, dtype="int16"), other)
        if "moved" in ending:
            value = self.hidden("broadcast_add", value, self.parameter_of((1,) * value.type.rank, "int16", -150, 150))
        low, high, dtype = ENDINGS[ending]
        stored = self.hidden("Cast", self.hidden("clip", value, a_min=low, a_max=high), dtype=dtype)
        if "table" not in ending:
            return stored
        table = self.parameter(self.integers((256,), "int8", -100, 100))
        return self.hidden("table_lookup", stored, table, offset=0 if dtype == "uint8" else 128)

    def convolution(self, data: Symbol, filters: int, kernel: tuple[int, ...], **attributes: Any) -> Symbol:
        groups = attributes.get("num_group", 1)
        weight = self.parameter_of((filters, data.shape[1] // groups, *kernel), "int8", -127, 127)
        attributes = {"kernel": kernel, "num_filter": filters, "no_bias": True, **attributes}
        return self.hidden("Convolution", data, weight, **attributes)

    def padded(self, data: Symbol, *widths: int, value: int = 0) -> Symbol:
        return self.hidden("Pad", data, pad_width=(0, 0, 0, 0, *widths), constant_value=float(value))

    def sliced(
        self, data: Symbol, lengths: Sequence[int], filters: int, kernel: tuple[int, ...], **more: Any
    ) -> Symbol:
        """The sum of convolutions of slices of the channels, each times a factor for each output channel."""
        terms = []
        for index, length in enumerate(lengths):
            begin = sum(lengths[:index])
            part = self.hidden("slice_axis", data, axis=1, begin=begin, end=begin + length)
            factors = self.parameter_of((filters, *(1,) * len(kernel)), "int16", 1, 256)
            terms.append(self.hidden("broadcast_mul", self.convolution(part, filters, kernel, **more), factors))
        return self.hidden("add_n", *terms)

    def finish(self, data: Symbol) -> None:
        self.add("relu", data)


def convolution(data: np.ndarray, weight: np.ndarray, bias: bool = False, **attributes: Any) -> Graph:
    """The graph of one convolution "y" of an input "x" like `data` by a constant weight."""
    builder = GraphBuilder()
    given = [builder.input("x", TensorType(data.shape, data.dtype.name)), builder.parameter("w", weight)]
    if bias:
        given.append(builder.parameter("b", np.arange(len(weight), dtype=np.int32) * 1000))
    layer = Convolution(kernel=weight.shape[2:], num_filter=len(weight), no_bias=not bias, **attributes)
    return builder.graph([builder.apply(layer, given, "y")])


def assert_same_within_bounds(before: Graph, after: Graph, x: np.ndarray) -> None:
    """A rewritten graph gives the same outputs for its input "x", and every operator what its known bounds say."""
    for found, expected in zip(after.evaluate({"x": x}), before.evaluate({"x": x}), strict=True):
        np.testing.assert_array_equal(found, expected)
    known = known_bounds(after, {})
    every = Graph(after.inputs, after.operators, after.parameters).evaluate({"x": x})
    for symbol, value in zip(after.operators, every, strict=True):
        bounds = known[symbol.name]
        assert bounds.min <= value.min() and value.max() <= bounds.max, symbol
        assert bounds.shape == value.shape, symbol


def softmax_of(layers: Layers, data: Symbol) -> Symbol:
    """Shares of each row, as integer networks compute them: powers from a table, one division."""
    highest = layers.hidden("max", data, axis=(-1,), keepdims=True)
    below = layers.hidden("clip", layers.hidden("broadcast_sub", data, highest), a_min=-128.0, a_max=0.0)
    table = layers.parameter(np.round(5e6 * np.exp(np.arange(-128, 1) / 40)).astype(np.int32))
    power = layers.hidden("table_lookup", layers.hidden("Cast", below, dtype="int8"), table, offset=128)
    total = layers.hidden("sum", power, axis=(-1,), keepdims=True)
    total = layers.hidden("clip", total, a_min=5e6, a_max=2.0**31 - 1)
    half = layers.hidden("floor_divide", total, layers.parameter(np.full((1,) * data.type.rank, 2, np.int8)))
    scaled = layers.hidden("broadcast_mul", power, layers.parameter(np.full((1,) * data.type.rank, 127, np.int8)))
    return layers.hidden("floor_divide", layers.hidden("broadcast_add", scaled, half), total)


def normalized(layers: Layers, data: Symbol) -> list[Symbol]:
    """Rows less their means over the roots of their squares' sums, for two readers."""
    total = layers.hidden("sum", data, axis=(-1,), keepdims=True)
    centred = layers.hidden(
        "broadcast_sub",
        layers.hidden("broadcast_mul", data, layers.parameter(np.full((1,) * data.type.rank, data.shape[-1], np.int8))),
        total,
    )
    short = layers.hidden("right_shift", centred, layers.parameter(np.full((1,) * data.type.rank, 3, np.int8)))
    squares = layers.hidden("sum", layers.hidden("elemwise_mul", short, short), axis=(-1,), keepdims=True)
    root = layers.hidden("integer_sqrt", layers.hidden("clip", squares, a_min=1.0, a_max=2.0**31 - 1), fraction_bits=3)
    return [
        layers.hidden(
            "floor_divide",
            layers.hidden("broadcast_mul", centred, layers.parameter(np.full((1,) * data.type.rank, n, np.int16))),
            root,
        )
        for n in (900, -700)
    ]


def assembly(graph: Graph, target: Mapping[str, Any]) -> str:
    """The code of a graph's first functions for a target, as a listing."""
    machine = Machine.of(target)
    builder = ModuleBuilder(machine)
    builder.add(graph, "main")
    return str(compile_executable(builder.module(), machine).kernels[0].inspect_source("asm"))


def kernel_texts(graph: Graph, mcpu: str = "icelake-server") -> list[str]:
    """The text of each function that a graph calls, for one core of a CPU."""
    machine, made = Machine.of({"mcpu": mcpu, "threads": 1}), dict[Any, str]()
    plan = plan_calls(graph, machine, lambda key, name, make: made.setdefault(key, name), {}, {})
    return [call.lowered.function(machine).script(show_meta=False) for call in plan.calls if call.lowered]
