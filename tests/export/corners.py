"""The corners of 32 bits, and graphs of the operators that are tried there."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

LOWEST, HIGHEST = -(2**31), 2**31 - 1
INTEGERS = np.array(
    sorted(
        {LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1, 0}
        | {sign * (2**k + d) for k in range(31) for d in (-1, 0, 1) for sign in (-1, 1)}
    ),
    np.int32,
)
LARGEST = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1)}


def graph_of(op: str, *inputs: TensorType | Array, **attributes: Any) -> Graph:
    """One operator on inputs x0, x1, … where a type is given, and on parameters where an array is."""
    builder = GraphBuilder()
    symbols = [
        builder.input(f"x{index}", value) if isinstance(value, TensorType) else builder.parameter(f"p{index}", value)
        for index, value in enumerate(inputs)
    ]
    return builder.graph([builder.apply(find_operator(op)(**attributes), symbols, "y")])


def held(values: Array, lo: int | None = None, hi: int | None = None) -> tuple[int, int]:
    return (int(values.min()) if lo is None else lo), (int(values.max()) if hi is None else hi)


def ends_of(entry: TensorQuantization, random_samples: int = 1) -> list[dict[str, Array]]:
    """An input at either end of its range, and so many times at both, at random."""
    random, lo, hi = np.random.default_rng(0), int(entry.lo), int(entry.hi)
    drawn = [np.full(entry.shape, lo), np.full(entry.shape, hi)]
    drawn += [random.choice([lo, hi], entry.shape) for _ in range(random_samples)]
    return [{entry.name: values.astype(entry.dtype)} for values in drawn]


def shifted(x: int, shift: int) -> int:
    return x if shift == 0 else ((x >> (shift - 1)) + 1) >> 1


def operators_of(dtype: str) -> tuple[Graph, tuple[int, int], list[dict[str, Array]]]:
    """A graph of what moves, chooses, pads or pools one input x of a dtype, the range of x, and feeds to its ends."""
    shape, info = (2, 4, 6, 4), np.iinfo("uint8") if dtype == "bool" else np.iinfo(dtype)
    top = 1 if dtype == "bool" else info.max
    low = 0 if dtype == "bool" else info.min
    small = {"lo": max(low, -(2**23)), "hi": min(top, 2**23)}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("relu", {}),
        ("clip", {"a_min": -3.5, "a_max": 1e9}),
        ("Pad", {"pad_width": (0, 0, 1, 0, 2, 1, 0, 3), "constant_value": 1.0}),
        ("Pad", {"pad_width": (0, 0, 0, 1, 2, 1, 0, 3), "mode": "reflect"}),
        ("Pad", {"pad_width": (0, 0, 0, 1, 2, 1, 0, 3), "mode": "edge"}),
        ("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full"}),
        ("Pooling", {"kernel": (2, 2), "stride": (3, 3)}),
        ("Pooling", {"kernel": (3, 2), "pad": (2, 0, 1, 1), "pool_type": "sum"}),
        ("Pooling", {"global_pool": True}),
        ("Pooling", {"global_pool": True, "pool_type": "sum"}),
        ("max", {"axis": (1, -1), "exclude": True}),
        ("min", {"axis": (0, 1, 2, 3), "exclude": True, "keepdims": True}),
        ("sum", {"axis": (0, 1, 2, 3), "exclude": True}),
        ("sum", {}),
        ("argmax", {"axis": -2, "keepdims": True}),
        ("argmin", {}),
        ("transpose", {}),
        ("slice", {"begin": (None, 1, None, 5), "end": (None, 3, None, 0), "step": (1, 1, 2, -2)}),
        ("slice", {"begin": (1,), "end": (None,), "step": (-1,)}),
        ("tile", {"reps": (2, 1, 1, 2, 1)}),
        ("repeat", {"repeats": 2}),
        ("UpSampling", {"scale": 2}),
        ("depth_to_space", {"block_size": 2}),
        ("space_to_depth", {"block_size": 2}),
        ("square" if dtype in ("int8", "uint8", "int16") else "abs", {}),
        ("negative", {}),
        ("Cast", {"dtype": "int32"}),
        ("Cast", {"dtype": "bool"}),
        ("_plus_scalar", {"scalar": 7.0}),
        ("_minus_scalar", {"scalar": 7.0}),
        ("_rminus_scalar", {"scalar": 7.0}),
        ("_mul_scalar", {"scalar": -3.0}),
        ("_maximum_scalar", {"scalar": 1.0}),
        ("_minimum_scalar", {"scalar": 1.0}),
        ("_copy", {}),
    ]
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape, dtype))
    made = [builder.apply(find_operator(op)(**attributes), [x]) for op, attributes in cases]
    made += [builder.apply(find_operator(op)(), [x, x]) for op in ("broadcast_maximum", "_minimum", "elemwise_sub")]
    made.append(builder.apply(find_operator("where")(), [x, x, made[0]]))
    graph = builder.graph(made)
    random = np.random.default_rng(0)
    lo, hi = small["lo"], small["hi"]
    feeds = [
        {"x": np.full(shape, lo, dtype)},
        {"x": np.full(shape, hi, dtype)},
        {"x": random.integers(lo, hi, shape, endpoint=True).astype(dtype)},
        {"x": random.choice([lo, 0, hi], shape).astype(dtype)},
    ]
    return graph, (lo, hi), feeds
