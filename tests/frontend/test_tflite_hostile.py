"""Damaged and hostile TFLite files: one MRTError, at once, in little memory."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flatbuffers
import hostile
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tflite_files import File, offsets, random, table, vector

from mrt.errors import GraphError, ModelFileError, MRTError
from mrt.frontend import from_tflite


def small(change: Callable[[File], Any] = lambda file: None, **fields: Any) -> bytes:
    """A convolution and a dense layer; `change` is told the file before it is written, `fields` go to write()."""
    file = File()
    data, weight = file.input((1, 4, 4, 2), name="x", signature=[-1, 4, 4, 2]), file.constant(random(3, 3, 3, 2))
    hidden, rows = file.tensor((1, 2, 2, 3), signature=[-1, 2, 2, 3]), file.tensor((1, 12), signature=[-1, 12])
    window = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    file.operator("CONV_2D", [data, weight, file.constant(random(3))], [hidden], "Conv2DOptions", **window)
    file.operator("RESHAPE", [hidden, file.constant(np.int32([-1, 12]))], [rows], "ReshapeOptions")
    stored = np.arange(60, dtype=np.int8).reshape(5, 12)
    dense = file.constant(stored, scales=[0.1] * 5, zero_points=[0] * 5)
    result = file.tensor((1, 5), signature=[-1, 5])
    file.operator("FULLY_CONNECTED", [rows, dense, -1], [result], "FullyConnectedOptions", FusedActivationFunction=1)
    change(file)
    return file.write(fields.pop("outputs", [result]), **fields)


WHOLE = small()


@contextmanager
def bounded(megabytes: int = 16) -> Iterator[None]:
    """See `hostile.bounded`; importing what reads is not counted."""
    from_tflite(WHOLE)
    with hostile.bounded(megabytes):
        yield


def test_the_whole_one_is_read() -> None:
    assert from_tflite(WHOLE, batch=2).outputs[0].shape == (2, 5)


@pytest.mark.parametrize("length", [*range(0, len(WHOLE), 5)])
def test_a_file_that_ends_early(length: int) -> None:
    """Flatbuffers are written from their end, so that what is cut off is never all that is needed."""
    with bounded(), pytest.raises(MRTError):
        from_tflite(WHOLE[:length])


@pytest.mark.parametrize("content", [b"", b"TFL3", b"\0\0\0\0TFL", b"\0\0\0\0TFL2" + bytes(40), bytes(100)])
def test_a_file_of_another_kind(content: bytes) -> None:
    with pytest.raises(ModelFileError, match="is no TFLite model"):
        from_tflite(content)


def test_no_more_than_the_identifier() -> None:
    for content in (b"\0\0\0\0TFL3", b"\xff\xff\xff\xffTFL3", b"\4\0\0\0TFL3", b"\x08\0\0\0TFL3" + b"\xff" * 40):
        with bounded(), pytest.raises(ModelFileError, match="damaged or truncated|schema version 0"):
            from_tflite(content)


def set_tensor(number: int, **fields: Any) -> Callable[[File], None]:
    return lambda file: file.tensors[number].update(fields)


def set_operator(number: int, **fields: Any) -> Callable[[File], None]:
    return lambda file: file.operators[number].update(fields)


def set_buffer(number: int, data: bytes) -> Callable[[File], None]:
    return lambda file: file.buffers.__setitem__(number, data)


LIES: list[tuple[Callable[[File], Any], str]] = [
    (set_tensor(1, shape=(3, 3, 3, -2)), r"tensor 1 has shape \(3, 3, 3, -2\)"),
    (set_tensor(1, shape=(3, 3, 3, 2**30)), r"needs 115964116992 bytes, its buffer holds 216"),
    (set_tensor(1, shape=(3, 3, 3, 1)), "needs 108 bytes, its buffer holds 216"),
    (set_tensor(1, kind="FLOAT16"), "needs 108 bytes, its buffer holds 216"),
    (set_tensor(1, kind="STRING"), "type STRING"),
    (set_tensor(1, buffer=9), "buffer 9 does not exist"),
    (set_tensor(1, buffer=2**32 - 1), "buffer 4294967295 does not exist"),
    (set_tensor(1, buffer=0), "reads t1, which no input"),
    (set_buffer(1, random(3, 3, 3, 2).tobytes()[:-1]), "its buffer holds 215"),
    (set_buffer(1, b""), "reads t1, which no input"),
    (set_buffer(3, np.int32([-1, -1]).tobytes()), "at most one -1"),
    (set_buffer(3, np.int32([2**31 - 1, 2**31 - 1]).tobytes()), "does not fit the target shape"),
    (set_buffer(3, np.int32([-5, 12]).tobytes()), "at most one -1"),
    (set_tensor(0, shape=(1, 4, 4, -1), signature=None), r"has shape \(1, 4, 4, -1\)"),
    (set_tensor(0, shape=(1, 4, 4, 0), signature=None), "positive sizes are needed"),
    (set_tensor(0, shape=(1, 2**31 - 1, 2**31 - 1, 2), signature=None), "at most 2147483648 elements"),
    (set_tensor(0, shape=(1, 4), signature=None), "rank 4 is needed"),
    (set_tensor(0, signature=[-1, 4]), "signature"),
    (set_tensor(0, signature=[-1, 5, 4, 2]), "signature"),
    (set_tensor(0, signature=[-1, -1, 4, 2]), "dynamic axis 1"),
    (set_tensor(0, name="a\nb"), "no text on one line"),
    (set_tensor(6, scales=[0.1] * 3), "has 3 scales"),
    (set_tensor(6, scales=[0.1] * 5, zero_points=[0] * 4), "5 scales and 4 zero points"),
    (set_tensor(6, axis=7), "along axis 7"),
    (set_tensor(6, axis=-1), "along axis -1"),
    (set_operator(0, inputs=[0, 1, 99]), r"tensors \(0, 1, 99\) are named, of 8"),
    (set_operator(0, inputs=[-2, 1, 2]), r"tensors \(-2, 1, 2\) are named"),
    (set_operator(0, inputs=[0, 2**31 - 1]), "are named"),
    (set_operator(0, inputs=[-1, 1, 4]), "input 0 is missing"),
    (set_operator(0, inputs=[]), "input 0 is missing"),
    (set_operator(0, outputs=[-1]), "are named"),
    (set_operator(0, outputs=[]), "has no output"),
    (set_operator(0, outputs=[3, 4]), "gives 1 tensors; the file says 2"),
    (set_operator(0, inputs=[3, 1, 4]), "reads t3, which no input, buffer or earlier operator gives"),
    (set_operator(0, inputs=[7, 1, 4]), "reads t7, which no input, buffer or earlier operator gives"),
    (set_operator(1, outputs=[2]), "reads t3, which no input"),
    (set_operator(2, outputs=[3]), "the output: reads t7, which no input"),
    (set_operator(0, outputs=[0]), "reads t2, which no input"),
    (lambda file: file.inputs.append(0), "t.* is given twice|two symbols are called x"),
    (lambda file: file.inputs.append(8), "are named, of 8"),
    (lambda file: file.inputs.append(-1), "are named, of 8"),
    (lambda file: file.operators.append(dict(file.operators[2])), "t7 is given twice"),
    (lambda file: file.operators.reverse(), "reads t3, which no input"),
]


@pytest.mark.parametrize(("change", "said"), LIES)
def test_files_that_lie(change: Callable[[File], Any], said: str) -> None:
    content = small(change)
    with bounded(), pytest.raises(MRTError, match=said):
        from_tflite(content)


def test_outputs_that_are_not_there() -> None:
    with pytest.raises(ModelFileError, match="no outputs"):
        from_tflite(small(outputs=[]))
    with pytest.raises(ModelFileError, match="are named"):
        from_tflite(small(outputs=[8]))
    with pytest.raises(GraphError, match="the output: reads t9"):
        from_tflite(small(lambda file: [file.tensor((1,)) for _ in range(2)], outputs=[9]))


def test_another_version() -> None:
    with pytest.raises(ModelFileError, match="schema version 2; 3 is read"):
        from_tflite(small(version=2))


def test_no_graph() -> None:
    """The vector of graphs, which is told its length just before its only offset, as an empty one."""
    places = [place for place in range(0, len(WHOLE) - 4, 4) if WHOLE[place : place + 4] == struct.pack("<I", 1)]
    said = set()
    for place in places:
        try:
            from_tflite(WHOLE[:place] + bytes(4) + WHOLE[place + 4 :])
        except MRTError as error:
            said.add(str(error).split(";")[0])
    assert "the model holds no graph" in said


NUMBERS = [2**32 - 1, 2**31 - 1, 2**31, 2**30, 2**16, 0, 1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_of_the_file_as_another(number: int) -> None:
    """Each aligned word, be it a count, an offset or a value, as every third number: read, or refused, and in bounded
    memory."""
    with bounded():
        for place in range(NUMBERS.index(number) % 3 * 4, len(WHOLE), 12):
            outcome(WHOLE[:place] + struct.pack("<I", number) + WHOLE[place + 4 :])


def test_vectors_that_are_the_same_bytes() -> None:
    """Thousands of operators whose inputs are one long vector: more numbers than a file of that length can mean."""
    builder = flatbuffers.Builder(1024)
    zeros = vector(builder, np.zeros(20_000))
    operators = [table(builder, "Operator", Inputs=zeros, Outputs=zeros) for _ in range(5_000)]
    fields = {
        "Tensors": offsets(builder, [table(builder, "Tensor")]),
        "Operators": offsets(builder, operators),
        "Outputs": zeros,
    }
    graph = offsets(builder, [table(builder, "SubGraph", **fields)])
    codes, buffers = (offsets(builder, [table(builder, kind)]) for kind in ("OperatorCode", "Buffer"))
    fields = {"Version": 3, "OperatorCodes": codes, "Subgraphs": graph, "Buffers": buffers}
    builder.Finish(table(builder, "Model", **fields), b"TFL3")
    content = bytes(builder.Output())
    with bounded(64), pytest.raises(ModelFileError, match="states more than its bytes can hold"):
        from_tflite(content)


@pytest.mark.parametrize(
    ("kind", "inputs", "options", "attributes"),
    [
        ("FILL", [[2**30, 2**30], [1]], "", {}),
        ("RANGE", [0, 2**31 - 1, 1], "", {}),
        ("RANGE", [0, 1, 0], "", {}),
        ("BROADCAST_TO", [None, [2**30, 4, 4, 2]], "", {}),
        ("TILE", [None, [2**30, 2**30, 1, 1]], "", {}),
        ("TILE", [None, [0, 1, 1, 1]], "", {}),
        ("TILE", [[[1]], [2**15, 2**15]], "", {}),
        ("PAD", [None, [[0, 0], [2**31 - 1, 2**31 - 1], [2**31 - 1, 0], [0, 0]]], "", {}),
        ("PAD", [None, [[0, 0], [-1, 0], [0, 0], [0, 0]]], "", {}),
        ("PAD", [None, [[0, 0]]], "", {}),
        ("MIRROR_PAD", [None, [[0, 0], [5, 0], [0, 0], [0, 0]]], "MirrorPadOptions", {"Mode": 1}),
        ("RESIZE_NEAREST_NEIGHBOR", [None, [2**30, 2**30]], "ResizeNearestNeighborOptions", {}),
        ("RESIZE_NEAREST_NEIGHBOR", [None, [2**24, 1]], "ResizeNearestNeighborOptions", {}),
        ("RESIZE_NEAREST_NEIGHBOR", [None, [0, -1]], "ResizeNearestNeighborOptions", {}),
        ("DEPTH_TO_SPACE", [None], "DepthToSpaceOptions", {"BlockSize": 2**30}),
        ("SPACE_TO_DEPTH", [None], "SpaceToDepthOptions", {"BlockSize": 0}),
        ("SLICE", [None, [0, 0, 0, 9], [1, 4, 4, 1]], "", {}),
        ("SLICE", [None, [0, 0, 0, 0], [1, 4, 4, 3]], "", {}),
        ("STRIDED_SLICE", [None, [0], [1], [0]], "StridedSliceOptions", {}),
        ("STRIDED_SLICE", [None, [0] * 6, [1] * 6, [1] * 6], "StridedSliceOptions", {}),
        ("STRIDED_SLICE", [None, [0, 0], [1, 1], [1, 1]], "StridedSliceOptions", {"EllipsisMask": 3}),
        ("STRIDED_SLICE", [None, [9], [10], [1]], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        ("SPLIT", [9, None], "SplitOptions", {"NumSplits": 1}),
        ("SPLIT_V", [None, [5, -9], 1], "SplitVOptions", {}),
        ("UNPACK", [None], "UnpackOptions", {"Axis": 1, "Num": 4}),
        ("GATHER", [None, [2**30]], "GatherOptions", {}),
        ("GATHER", [None, [0]], "GatherOptions", {"Axis": 99}),
        ("GATHER", [None, []], "GatherOptions", {}),
        ("TRANSPOSE", [None, [0, 0, 1, 2]], "", {}),
        ("TRANSPOSE", [None, [0, 1]], "", {}),
        ("EXPAND_DIMS", [None, 9], "", {}),
        ("SQUEEZE", [None], "SqueezeOptions", {"SqueezeDims": [1]}),
        ("MEAN", [None, [7]], "ReducerOptions", {}),
        ("CONCATENATION", [None, [1.0]], "ConcatenationOptions", {}),
        ("PACK", [], "PackOptions", {}),
        ("ADD", [None, [[1.0] * 3]], "AddOptions", {}),
        ("ADD", [None], "AddOptions", {}),
        ("ADD", [[[1.0]] * 9000, [[1.0] * 9000]], "AddOptions", {}),
        ("FULLY_CONNECTED", [None, [[1.0] * 5]], "FullyConnectedOptions", {}),
        ("FULLY_CONNECTED", [None, [[1.0] * 2]], "FullyConnectedOptions", {"WeightsFormat": 1}),
        ("BATCH_MATMUL", [None, [[1.0] * 3] * 3], "BatchMatMulOptions", {}),
        ("PRELU", [None, [1.0, 2.0, 3.0]], "", {}),
        ("MAX_POOL_2D", [None], "Pool2DOptions", {"FilterHeight": 9, "FilterWidth": 1, "Padding": 1}),
        ("MAX_POOL_2D", [None], "Pool2DOptions", {"FilterHeight": 2**31 - 1, "FilterWidth": 1}),
        ("TRANSPOSE_CONV", [[1, 2**30, 4, 1], [[[[1.0, 1.0]]]], None], "TransposeConvOptions", {}),
        ("TRANSPOSE_CONV", [[1, 4, 4], [[[[1.0, 1.0]]]], None], "TransposeConvOptions", {}),
        ("ARG_MAX", [None, 9], "", {}),
        ("POW", [None, None], "", {}),
        ("FLOOR_DIV", [None, None], "", {}),
    ],
)
def test_options_and_constants_that_fit_nothing(
    kind: str, inputs: list[Any], options: str, attributes: dict[str, Any]
) -> None:
    """None is the data, of shape (1, 4, 4, 2). The file says nothing of the result's shape."""
    file = File()
    data, result = file.input((1, 4, 4, 2)), file.tensor(())
    numbers = [data if value is None else file.constant(as_array(value)) for value in inputs]
    strides = {"StrideH": 1, "StrideW": 1} if options.startswith(("Pool", "TransposeConv")) else {}
    file.operator(kind, numbers, [result], options, **strides | attributes)
    content = file.write([result])
    with bounded(), pytest.raises(MRTError) as error:
        from_tflite(content)
    assert re.match(r"t1(_\w+)? \(|the model", str(error.value)) or "reads t1" in str(error.value)


def as_array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" and array.size else np.int32)


def test_a_chain_of_thousands() -> None:
    file = File()
    last = file.input((1,))
    for _ in range(3_000):
        following = file.tensor((1,))
        file.operator("EXP", [last], [following])
        last = following
    assert from_tflite(file.write([last])).count_operators()["exp"] == 3_000


def outcome(content: bytes) -> None:
    """Reads, or refuses with an MRTError; anything else comes through."""
    try:
        from_tflite(content)
    except MRTError as error:
        assert str(error)


WORDS = st.one_of(st.sampled_from([0, 1, 4, 2**31 - 1, 2**31, 2**32 - 1, len(WHOLE)]), st.integers(0, 2**32 - 1)).map(
    lambda number: struct.pack("<I", number)
)


@given(st.data())
def test_mutated_bytes(data: st.DataObject) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content)))
        kind = data.draw(st.sampled_from(["byte", "word", "insert", "cut"]))
        if kind == "byte":
            content[begin : begin + 1] = bytes([data.draw(st.integers(0, 255))])
        elif kind == "word":
            content[begin & ~3 : (begin & ~3) + 4] = data.draw(WORDS)
        elif kind == "insert":
            content[begin:begin] = data.draw(st.binary(max_size=8))
        else:
            del content[begin : begin + data.draw(st.integers(0, 8))]
    outcome(bytes(content))


@given(st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    outcome(content)
    outcome(content[:4] + b"TFL3" + content[4:])
    outcome(WHOLE[:8] + content)


@given(st.data())
def test_mutated_models(data: st.DataObject) -> None:
    """Whole flatbuffers of nonsense: kinds, inputs, shapes and options exchanged."""

    def change(file: File) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            told = data.draw(st.sampled_from(file.operators))
            tensor = data.draw(st.sampled_from(file.tensors))
            field = data.draw(st.sampled_from(["kind", "inputs", "attribute", "shape", "type"]))
            if field == "kind":
                told.update(kind=data.draw(KINDS), options="", attributes={})
            elif field == "inputs":
                told.update(inputs=data.draw(st.lists(st.integers(-1, 7), max_size=4)))
            elif field == "attribute" and told["attributes"]:
                name = data.draw(st.sampled_from([*told["attributes"]]))
                whole = name in ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
                told["attributes"][name] = data.draw(st.integers(-(2**31), 2**31 - 1) if whole else st.integers(-1, 9))
            elif field == "shape":
                tensor.update(shape=data.draw(st.lists(st.integers(-1, 2**31 - 1), max_size=5)), signature=None)
            else:
                tensor.update(kind=data.draw(st.sampled_from(["FLOAT32", "FLOAT16", "INT32", "INT8", "BOOL"])))

    outcome(small(change))


KINDS = st.sampled_from(
    [
        *("ADD", "CONCATENATION", "PAD", "RESHAPE", "STRIDED_SLICE", "GATHER", "MEAN", "TRANSPOSE", "PACK", "FILL"),
        *("SELECT_V2", "PRELU", "SOFTMAX", "DEPTH_TO_SPACE", "TRANSPOSE_CONV", "BATCH_MATMUL", "L2_NORMALIZATION"),
        *("SHAPE", "CAST", "RANGE", "TILE", "SLICE", "BROADCAST_TO", "EMBEDDING_LOOKUP", "DEQUANTIZE", "ARG_MAX"),
    ]
)
