"""Damaged and hostile Relay texts and parameter files: one MRTError, at once, in little memory."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import hostile
import numpy as np
import pytest
from hostile import outcome
from hypothesis import given
from hypothesis import strategies as st
from relay_texts import PARAMETERS_MAGIC, TENSOR_MAGIC, VERSION, function, metadata, parameters, random, record, tensor

from mrt.errors import ModelFileError, MRTError
from mrt.frontend.relay import from_relay
from mrt.frontend.relay.tensors import parse_parameters, parse_tensor

WHOLE = function(
    "nn.softmax(%2)",
    [
        "%0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3])",
        "let %a: (float32, float32) = split(nn.relu(%0), indices_or_sections=2, axis=1)",
        "%1 = fn (%p: Tensor[(1, 2, 4, 4), float32], Primitive=1) { add(%p, meta[relay.Constant][0]) }",
        "%2 = reshape(%1(%a.1) /* ty=Tensor[(1), float32] */, newshape=[0, -1])",
    ],
    x=(1, 3, 4, 4),
    w=(4, 3, 3, 3),
) + metadata(random(2, 1, 1))
PARAMS = {"w": random(4, 3, 3, 3)}
BYTES = parameters({"w": random(2, 3), "b": np.arange(4, dtype=np.int8), "s": np.asarray(True)})


@contextmanager
def bounded(megabytes: int = 64) -> Iterator[None]:
    """As `hostile.bounded`; the first use of the grammar is not counted."""
    from_relay(function("1f"))
    with hostile.bounded(megabytes):
        yield


def test_the_whole_ones_are_read() -> None:
    assert from_relay(WHOLE, PARAMS).outputs[0].shape == (1, 32)
    assert set(parse_parameters(BYTES, "p")) == {"w", "b", "s"}


@pytest.mark.parametrize("place", [*range(0, len(WHOLE) - 4, 7)])
def test_text_that_ends_early(place: int) -> None:
    with bounded(), pytest.raises(MRTError):
        from_relay(WHOLE[:place], PARAMS)


@pytest.mark.parametrize("place", [*range(len(BYTES))])
def test_parameters_that_end_early(place: int) -> None:
    with pytest.raises(ModelFileError):
        parse_parameters(BYTES[:place], "p")


def head(**fields: int) -> bytes:
    """An NDArray record of one axis with other numbers in its header than are true."""
    told = {"magic": TENSOR_MAGIC, "rank": 1, "code": 2, "bits": 32, "lanes": 1, "size": 3, "bytes": 12} | fields
    return (
        struct.pack("<QQiii", told["magic"], 0, 1, 0, told["rank"])
        + struct.pack("<BBHqq", told["code"], told["bits"], told["lanes"], told["size"], told["bytes"])
        + bytes(12)
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"magic": 1}, "begins with 0x1"),
        ({"rank": -1}, "-1 axes"),
        ({"rank": 2**31 - 1}, "2147483647 axes"),
        ({"rank": 33}, "33 axes"),
        ({"code": 5, "bits": 64}, "type code 5 of 64 bits"),
        ({"bits": 7}, "type code 2 of 7 bits"),
        ({"lanes": 4}, "4 lanes"),
        ({"size": -3}, r"shape \(-3,\)"),
        ({"size": 2**62}, r"shape \(4611686018427387904,\)"),
        ({"size": 2**40, "bytes": 2**42}, "needs 4398046511104 bytes"),
        ({"bytes": 8}, "4 for each element"),
        ({"size": 2, "bytes": 8}, "4 bytes follow"),
    ],
)
def test_headers_that_lie(fields: dict[str, int], said: str) -> None:
    content = head(**fields)
    with bounded(8), pytest.raises(ModelFileError, match=said):
        parse_tensor(content, "t")
    with bounded(), pytest.raises(ModelFileError, match=said):
        from_relay(function("meta[relay.Constant][0]") + metadata(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the header needs 16 bytes"),
        (bytes(64), "begins with 0x0"),
        (struct.pack("<QQQ", PARAMETERS_MAGIC, 0, 2**63), "states 9223372036854775808 names"),
        (struct.pack("<QQQQ", PARAMETERS_MAGIC, 0, 1, 2**60), "a name needs 1152921504606846976 bytes"),
        (struct.pack("<QQQQ", PARAMETERS_MAGIC, 0, 0, 1), "0 names and 1 tensors"),
        (struct.pack("<QQQQcQ", PARAMETERS_MAGIC, 0, 1, 1, b"\xff", 1), "no UTF-8 text"),
        (struct.pack("<QQQQcQcQ", PARAMETERS_MAGIC, 0, 2, 1, b"a", 1, b"a", 2), "two parameters have one name"),
        (struct.pack("<QQQQ", PARAMETERS_MAGIC, 0, 0, 0) + b"x", "1 bytes follow"),
    ],
)
def test_parameter_files_that_lie(content: bytes, said: str) -> None:
    with bounded(8), pytest.raises(ModelFileError, match=said):
        parse_parameters(content, "p")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("#[metadata]\n", "no JSON"),
        ("#[metadata]\n" + "[" * 100_000, "no JSON"),
        ('#[metadata]\n{"root": 1', "no JSON"),
        ("#[metadata]\n[]", "not one that TVM writes"),
        ('#[metadata]\n{"root": 9, "nodes": []}', "not one that TVM writes"),
        ('#[metadata]\n{"root": 0, "nodes": [{"keys": ["relay.Constant"], "data": [7]}]}', "not one that TVM writes"),
        (metadata(), "holds 0 constants"),
        (metadata(random(2)).replace('"b64ndarrays": ["', '"b64ndarrays": ["***'), "no base64"),
        (metadata(random(2)).replace('"b64ndarrays": ["', '"b64ndarrays": [1, "'), "no base64"),
        (metadata(random(2)).replace('"data": "0"', '"data": "5"'), "tensor 5 is asked for, 1 are there"),
        (metadata(base64.b64encode(b"x" * 40)), "begins with"),
    ],
)
def test_metadata_that_is_damaged(section: str, said: str) -> None:
    with bounded(), pytest.raises(ModelFileError, match=said):
        from_relay(function("meta[relay.Constant][0]") + section)


SCATTER = "relay.attrs.ScatterElementsAttrs"


def with_attributes(attributes: str, *nodes: str) -> str:
    """The metadata section of one ScatterElementsAttrs, with nodes after those that it always has."""
    always = [
        '{"type_key": ""}',
        f'{{"type_key": "Map", "keys": ["{SCATTER}"], "data": [2]}}',
        '{"type_key": "Array", "data": [3]}',
        f'{{"type_key": "{SCATTER}", "attrs": {attributes}}}',
    ]
    return f'#[metadata]\n{{"root": 1, "nodes": [{", ".join([*always, *nodes])}]}}'


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("", "there is no metadata section|holds 0 of these"),
        (metadata(random(2)), "holds 0 of these"),
        (with_attributes("{}"), "axis 0 is outside a tensor of rank 0"),
        (with_attributes('{"axis": "99", "reduction": "0"}'), "not ones that TVM writes"),
        (with_attributes('{"axis": "three"}'), "not ones that TVM writes"),
        (with_attributes("7"), "not ones that TVM writes"),
        (with_attributes('{"axis": "4"}', "{}"), "not ones that TVM writes"),
        (with_attributes('{"axis": "4"}', '{"type_key": "IntImm", "attrs": {}}'), "not ones that TVM writes"),
        (with_attributes('{"step": "4"}', '{"type_key": "IntImm", "attrs": {"value": "1"}}'), "attribute step is not"),
    ],
)
def test_attributes_that_are_damaged(section: str, said: str) -> None:
    text = function(f"scatter_elements(0f, 0, 1f, meta[{SCATTER}][0])") + section
    with bounded(), pytest.raises(MRTError, match=said):
        from_relay(text)
    with pytest.raises(ModelFileError, match="of attributes only"):
        from_relay(function("nn.relu(%x, meta[relay.attrs.Conv2DAttrs][0])", x=(1,)) + metadata(random(2)))


@pytest.mark.parametrize(
    "text",
    [
        VERSION + "def @main() { " + "fn () { " * 100_000,
        VERSION + "def @main() { " + "(" * 200_000,
        VERSION + "def @main() { nn.relu(" * 50_000,
        function("nn.relu(%x, a=" + "[" * 100_000, x=(1,)),
        function("nn.relu(%x, a=" + "{a=" * 100_000, x=(1,)),
        VERSION + "def @main(%x: " + "(" * 100_000,
        VERSION + "def @main(%x: " + "fn () -> " * 10_000,
        "/*" * 100_000,
        '"' * 100_001,
        "%" * 100_000,
        "#" * 100_000,
        "\\" * 100_000,
    ],
    ids=[*map(str, range(12))],
)
def test_deep_nesting(text: str) -> None:
    with bounded(400), pytest.raises(MRTError):
        from_relay(text)


@pytest.mark.parametrize(
    "call",
    [
        "ones(shape=[1000000, 1000000])",
        "full(1f, shape=[9223372036854775807, 2])",
        "zeros(shape=[-1])",
        'zeros(shape=[2], dtype="text")',
        "broadcast_to(%x, shape=[1000000000, 3])",
        "tile(ones(shape=[1000]), reps=[1000000000])",
        "repeat(ones(shape=[1000]), repeats=1000000000, axis=0)",
        "add(ones(shape=[1000000, 1]), ones(shape=[1, 1000000]))",
        "arange(0f, 1000000000000f, 1f)",
        "arange(0f, 1f, 0f)",
        'image.resize2d(%i, size=[1000000000, 2], method="nearest_neighbor")',
        'image.resize2d(%i, size=[0, 2], method="nearest_neighbor")',
        "nn.upsampling(%i, scale_h=1000000000f, scale_w=1e+38f)",
        "nn.upsampling(%i, scale_h=inff, scale_w=2f)",
        "nn.pad(ones(shape=[1]), 0f, pad_width=[[1000000000, 0]])",
        "nn.pad(%x, 0f, pad_width=[[-1, 0], [0, 0]])",
        "nn.pad(%x, 0f, pad_width=[[1], [0, 0]])",
        "nn.conv2d(%i, ones(shape=[1, 1, 1, 1]), strides=[0, 1])",
        "nn.conv2d(%i, ones(shape=[1, 1, 1, 1]), padding=[-1])",
        "nn.conv2d(%i, ones(shape=[1, 1, 1, 1]), groups=0)",
        "nn.conv2d(%i, ones(shape=[1, 1]))",
        'nn.conv2d(%i, ones(shape=[1, 1, 1, 1]), data_layout="NCHW16c")',
        "nn.max_pool2d(%i, pool_size=[])",
        "nn.max_pool2d(%i, pool_size=[0, 0])",
        "nn.avg_pool2d(%i, pool_size=[9, 9])",
        "reshape(%x, newshape=[-1, -1])",
        "reshape(%x, newshape=[-9])",
        "reshape(%x, newshape=[7])",
        "transpose(%x, axes=[0, 0])",
        "expand_dims(%x, axis=0, num_newaxis=1000000000)",
        "squeeze(%x, axis=[0])",
        "split(%x, indices_or_sections=0)",
        "split(%x, indices_or_sections=1000000000)",
        "split(%x, indices_or_sections=[5, 1], axis=1)",
        "strided_slice(%x, begin=[0], end=[0], strides=[1], axes=None)",
        "strided_slice(%x, begin=[0], end=[2], strides=[0], axes=None)",
        "strided_slice(%x, begin=[0, 0, 0], end=[1], strides=[1], axes=[0])",
        'take(%x, 5, axis=0, mode="fast")',
        "concatenate((), axis=0)",
        "concatenate(%x, axis=0)",
        "concatenate((%x, %i), axis=0)",
        "nn.dense(%x, ones(shape=[4, 4]), units=None)",
        "nn.batch_matmul(%x, %x)",
        "nn.bias_add(%x, ones(shape=[2]))",
        "nn.batch_norm(%x, 1f, 1f, 1f, 1f)",
        "nn.group_norm(%i, ones(shape=[1]), ones(shape=[1]), num_groups=0)",
        "nn.l2_normalize(%x, eps=1f, axis=[0])",
        "power(%x, %x)",
        "where(%x, %x, %i)",
        'cast(%x, dtype="complex")',
        "fixed_point_multiply(%n, multiplier=1, shift=-100)",
        "qnn.quantize(%x, 0f, 0)",
        'qnn.quantize(%x, 0f, 0, out_dtype="int8")',
        'qnn.quantize(%x, 1f, 0.5f, out_dtype="int8")',
        'qnn.quantize(%x, 1f, 0, out_dtype="float32")',
        'qnn.requantize(%n, 1f, 0, 1e-30f, 0, out_dtype="int8")',
        'qnn.requantize(%n, 1f, 0, 1f, 0, rounding="DOWN", out_dtype="int8")',
        "qnn.conv2d(%n, %n, 0, 0, 1f, 1f)",
        "left_shift(%n, 40)",
        "right_shift(%n, -1)",
        "floor_divide(%n, 0)",
        'layout_transform(%i, src_layout="NCHW", dst_layout="NCHW4c")',
    ],
)
def test_attributes_that_fit_nothing(call: str) -> None:
    text = function(f"({call}, %x)", x=(2, 3), i=(1, 1, 4, 4), n=tensor((2, 3), "int32"))
    with bounded(), pytest.raises(MRTError) as error:
        from_relay(text)
    assert "line 3" in str(error.value)


def test_functions_that_stand_for_endlessly_many_calls() -> None:
    definitions = "".join(f"def @f{n}(%x) {{ @f{n - 1}(@f{n - 1}(%x)) }}\n" for n in range(1, 64))
    text = f"{VERSION}def @f0(%x) {{ %x }}\n{definitions}def @main(%x: {tensor((1,))}) {{ @f63(%x) }}"
    with bounded(256), pytest.raises(MRTError, match="function calls"):
        from_relay(text)


PIECES = [*'()]{,="', "%x", "-1", "None", "1f", ".0", "%0", "/*", "0", "99999999999", "a.b"]


@given(st.data())
def test_mutated_texts(data: st.DataObject) -> None:
    text = WHOLE
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 12)))
        text = text[:begin] + data.draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=4))) + text[end:]
    outcome(lambda: from_relay(text, PARAMS))


OPERATORS = [
    *("nn.relu", "add", "nn.conv2d", "reshape", "concatenate", "split", "nn.dense", "strided_slice", "take", "sum"),
    *(
        "nn.pad",
        "qnn.requantize",
        "nn.batch_norm",
        "where",
        "expand_dims",
        "transpose",
        "nn.upsampling",
        "tile",
        "cast",
    ),
]
VALUES = st.one_of(
    st.sampled_from(
        ["None", "True", '"NCHW"', '"int8"', "0", "1", "-1", "2i64", "0.5f", "[]", "[1]", "[0, -1]", "[[1, 1]]"]
    ),
    st.integers(-(2**63), 2**63).map(str),
)
NAMES = st.sampled_from(
    ["axis", "newshape", "axes", "begin", "end", "strides", "padding", "dtype", "pad_width", "units"]
)
EXPRESSIONS = st.recursive(
    st.sampled_from(["%x", "%i", "%n", "1f", "2", "()", "meta[relay.Constant][0]"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"({', '.join(items)},)" if items else "()"),
        inner.map(lambda item: f"({item}).0"),
        st.builds(
            lambda name, items, keys: f"{name}({', '.join([*items, *(f'{k}={v}' for k, v in keys.items())])})",
            st.sampled_from(OPERATORS),
            st.lists(inner, max_size=3),
            st.dictionaries(NAMES, VALUES, max_size=3),
        ),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_random_expressions(expression: str) -> None:
    text = function(expression, x=(2, 3), i=(1, 1, 4, 4), n=tensor((2, 3), "int32")) + metadata(random(3))
    outcome(lambda: from_relay(text))


@given(st.text())
def test_random_text(text: str) -> None:
    outcome(lambda: from_relay(text))
    outcome(lambda: from_relay(VERSION + text))


@given(st.data())
def test_mutated_parameters(data: st.DataObject) -> None:
    content = bytearray(BYTES)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    outcome(lambda: parse_parameters(bytes(content), "p"))
    outcome(lambda: from_relay(WHOLE, bytes(content)))


@given(st.binary(max_size=64))
def test_random_parameters(content: bytes) -> None:
    outcome(lambda: parse_parameters(content, "p"))
    outcome(lambda: parse_parameters(struct.pack("<QQQ", PARAMETERS_MAGIC, 0, 1) + content, "p"))
    outcome(lambda: parse_tensor(struct.pack("<QQ", TENSOR_MAGIC, 0) + content, "t"))
    assert parse_tensor(record(np.asarray([1.5], np.float64)), "t")[0] == 1.5
