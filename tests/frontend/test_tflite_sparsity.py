"""Sparse constants of TFLite files stand for the dense ones, whatever the order, the blocks and the form of levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_files import File, interpreted, random

from mrt.errors import ModelFileError
from mrt.frontend import from_tflite
from mrt.frontend.tflite.sparsity import Level, Sparsity

Array = np.ndarray


def pruned(*shape: int, seed: int = 0) -> Array:
    """About a third of it is not 0."""
    values = random(*shape, seed=seed)
    return np.where(np.random.default_rng(seed + 1).uniform(size=shape) < 0.35, values, 0).astype(np.float32)


def stored(dense: Array, order: list[int], blocks: dict[int, int], sparse: set[int]) -> tuple[Array, dict[str, Any]]:
    """The values and the parameters of a sparse tensor, written down element by element.

    blocks: the size of blocks along a dimension, in the order of the block map; sparse: the levels in compressed rows.
    """
    rank, sizes, shape = dense.ndim, list(blocks.values()), list(dense.shape)
    for dimension, size in blocks.items():
        shape[dimension] //= size
    lengths = [*shape, *sizes]

    def element(place: tuple[int, ...]) -> float:
        index = list(place[:rank])
        for block, dimension in enumerate(blocks):
            index[dimension] = index[dimension] * sizes[block] + place[rank + block]
        return float(dense[tuple(index)])

    def any_below(known: dict[int, int]) -> bool:
        free = [range(size) if axis not in known else [known[axis]] for axis, size in enumerate(lengths)]
        return any(
            element(tuple(axis[at] for axis, at in zip(free, choice, strict=True)))
            for choice in np.ndindex(*map(len, free))
        )

    rows: list[dict[int, int]] = [{}]
    levels: list[int | tuple[Array, Array]] = []
    for level, dimension in enumerate(order):
        below = [[row | {dimension: at} for at in range(lengths[dimension])] for row in rows]
        if level in sparse:
            below = [[child for child in children if any_below(child)] for children in below]
            segments = np.cumsum([0, *map(len, below)])
            indices = [child[dimension] for children in below for child in children]
            levels.append((np.asarray(segments, ["int32", "uint8", "uint16"][level % 3]), np.asarray(indices, "uint8")))
        else:
            levels.append(lengths[dimension])
        rows = [child for children in below for child in children]
    values = [element(tuple(row[axis] for axis in range(len(lengths)))) for row in rows]
    return np.float32(values), {"order": order, "block_map": list(blocks), "levels": levels}


FORMS = {
    "rows": ((6, 8), [0, 1], {}, {1}),
    "columns": ((6, 8), [1, 0], {}, {1}),
    "both sparse": ((6, 8), [0, 1], {}, {0, 1}),
    "dense": ((6, 8), [0, 1], {}, set()),
    "blocks of columns": ((6, 8), [0, 1, 2], {1: 4}, {1}),
    "blocks of both": ((6, 8), [0, 1, 2, 3], {0: 2, 1: 4}, {1}),
    "blocks, the last axis first": ((6, 8), [1, 0, 3, 2], {0: 3, 1: 2}, {1}),
    "a kernel": ((4, 3, 3, 5), [0, 1, 2, 3], {}, {3}),
    "a kernel in blocks of outputs": ((4, 1, 1, 6), [0, 1, 2, 3, 4], {0: 4}, {3}),
}


def densify(values: Array, parameters: dict[str, Any], shape: tuple[int, ...]) -> bytes:
    """A network that adds the sparse constant to its input."""
    file = File()
    file.buffers.append(values.tobytes())
    constant = file.tensor(shape, values.dtype.name, buffer=len(file.buffers) - 1, sparsity=parameters)
    dense, data, result = file.tensor(shape, values.dtype.name), file.input(shape), file.tensor(shape)
    file.operator("DENSIFY", [constant], [dense])
    if values.dtype != np.float32:
        wide = file.tensor(shape)
        file.operator("DEQUANTIZE", [dense], [wide], "DequantizeOptions")
        dense = wide
    file.operator("ADD", [data, dense], [result], "AddOptions")
    return file.write([result])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", FORMS)
def test_a_sparse_constant_is_the_dense_one(name: str, dtype: str) -> None:
    shape, order, blocks, sparse = FORMS[name]
    dense = pruned(*shape).astype(dtype)
    values, parameters = stored(dense, order, blocks, sparse)
    graph = from_tflite(densify(values.astype(dtype), parameters, shape))
    (found,) = graph.evaluate({graph.inputs[0].name: np.zeros(shape, np.float32)})
    np.testing.assert_array_equal(found, dense.astype(np.float32))


@pytest.mark.parametrize("name", FORMS)
def test_the_interpreter_reads_the_same(name: str) -> None:
    shape, order, blocks, sparse = FORMS[name]
    dense = pruned(*shape)
    content = densify(*stored(dense, order, blocks, sparse), shape)
    np.testing.assert_array_equal(interpreted(content, [np.zeros(shape, np.float32)])[0], dense)


def csr(segments: list[int], indices: list[int]) -> Level:
    return Level(segments=np.asarray(segments), indices=np.asarray(indices))


@pytest.mark.parametrize(
    ("sparsity", "values"),
    [
        (Sparsity((0, 1), (), (Level(2), csr([0, 1, 2], [0, 1]))), 3),
        (Sparsity((0, 1), (), (Level(2), csr([0, 1, 2], [0, 7]))), 2),
        (Sparsity((0, 1), (), (Level(2), csr([0, 1, 2], [0, -1]))), 2),
        (Sparsity((0, 1), (), (Level(2), csr([0, 2, 1], [0, 1]))), 2),
        (Sparsity((0, 1), (), (Level(2), csr([0, 1], [0]))), 1),
        (Sparsity((0, 0), (), (Level(2), Level(3))), 6),
        (Sparsity((0, 1), (), (Level(2), Level(2**30))), 6),
        (Sparsity((0, 1), (), (Level(2),)), 6),
        (Sparsity((0, 1, 2), (5,), (Level(2), Level(3), Level(1))), 6),
        (Sparsity((0, 1, 2), (0,), (Level(2), Level(3), csr([0, 0, 0, 0, 0, 0, 0], []))), 0),
    ],
)
def test_parts_that_do_not_fit(sparsity: Sparsity, values: int) -> None:
    with pytest.raises(ValueError, match=r"places|segments|traversal|blocks"):
        sparsity.dense(np.zeros(values, np.float32), (2, 3))


def test_a_damaged_one_is_one_error() -> None:
    values, parameters = stored(pruned(6, 8), [0, 1], {}, {1})
    with pytest.raises(ModelFileError, match="which is sparse: the file is damaged"):
        from_tflite(densify(values[1:], parameters, (6, 8)))


def test_a_giant_asked_for_by_a_few_numbers_is_refused() -> None:
    shape = (2**14, 2**14)
    parameters = {"order": [0, 1], "levels": [2**14, (np.zeros(2, np.int32), np.zeros(0, np.int32))]}
    with pytest.raises(Exception, match="elements are allowed"):
        from_tflite(densify(np.float32([1]), parameters, shape))
