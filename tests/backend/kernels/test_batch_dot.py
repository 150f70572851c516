"""Products of matrices that are both computed."""

from __future__ import annotations

import numpy as np
from layers import BYTES, Layers, in_turn

from mrt.symbol import Runner


def test_products_of_computed_matrices(runner: Runner, turn: int) -> None:
    """Odd numbers of rows, columns and terms, several matrices, operands that are transposed or not dense; so many rows
    and columns, both prime, that rows are jammed and blocks of columns are turned. Every other one on each CPU."""
    layers, dtypes = Layers(), in_turn(BYTES, turn // 2)
    for left, right, attributes in [
        ((3, 7, 13), (3, 13, 33), {}),
        ((3, 13, 7), (3, 13, 33), {"transpose_a": True}),
        ((1, 9, 16), (1, 20, 16), {"transpose_b": True}),
        ((2, 37, 48), (2, 41, 48), {"transpose_b": True}),
        ((2, 2, 5, 18), (2, 2, 18, 1), {}),
        ((1, 1, 1), (1, 1, 1), {}),
    ][turn % 2 :: 2]:
        a = layers.requantized(layers.input(layers.integers(left, "int16", -200, 200)), next(dtypes))
        b = layers.requantized(layers.input(layers.integers(right, "int16", -200, 200)), "int8")
        layers.finish(layers.hidden("batch_dot", a, b, **attributes))
    a = layers.requantized(layers.input(layers.integers((2, 5, 24), "int16", -200, 200)), next(dtypes))
    rows = [layers.parameter_of((40, 24), "int8", -127, 127) for _ in range(2)]
    made = [layers.hidden("FullyConnected", a, row, num_hidden=40, no_bias=True, flatten=False) for row in rows]
    query, key = (layers.requantized(each, "int8") for each in made)
    turned = layers.hidden("transpose", key, axes=(0, 2, 1))
    layers.finish(layers.requantized(layers.hidden("batch_dot", query, turned)))
    heads = [
        layers.hidden("transpose", layers.hidden("Reshape", each, shape=(2, 5, 4, 10)), axes=(0, 2, 1, 3))
        for each in (query, key)
    ]
    layers.finish(layers.hidden("batch_dot", *heads, transpose_b=True))
    layers.finish(layers.hidden("batch_dot", heads[0], layers.parameter_of((2, 4, 10, 3), "uint8", 0, 255)))
    flat = layers.hidden("Flatten", query)
    layers.finish(
        layers.hidden(
            "FullyConnected", flat, layers.parameter_of((9, 200), "int8", -127, 127), num_hidden=9, no_bias=True
        )
    )
    layers.check(runner=runner)


def test_products_of_matrices_stay_exact_at_the_extremes(runner: Runner) -> None:
    layers = Layers()
    for value, dtype, weight, other, terms in (
        (255, "uint8", -128, "int8", 130),
        (-128, "int8", -128, "int8", 130),
        (-128, "int8", 255, "uint8", 130),
        (-(2**15), "int16", -(2**15), "int16", 1),
        (-(2**15), "int16", 2**15 - 1, "int16", 2),
        (2**12 - 1, "int16", 2**12 - 1, "int16", 128),
        (2**12 - 1, "int16", -128, "int8", 130),
    ):
        for length in {1, terms}:
            given = [
                layers.input(np.full(shape, n, kind))
                for shape, n, kind in (((2, 3, length), value, dtype), ((2, length, 5), weight, other))
            ]
            layers.finish(layers.hidden("batch_dot", *(layers.hidden("clip", x, a_min=-1e5, a_max=1e5) for x in given)))
    layers.check(runner=runner)
