"""The exported Relay text and its parameters: grammar, types of every call, names, files."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corners import graph_of
from exported import facts
from relay_exported import RelayModule, exported, run
from relay_rules import applicable_to
from relay_types import Type, infer
from typer.testing import CliRunner

import mrt
from mrt.cli import app
from mrt.errors import ModelFileError
from mrt.export.relay.node import relay_name
from mrt.export.relay.params import params_to_bytes
from mrt.frontend.relay.tensors import parse_parameters
from mrt.frontend.relay.text import parse_module
from mrt.model import QuantizedModel, assemble
from mrt.quantization.expand import expand_graph
from mrt.symbol import GraphBuilder, TensorType, find_operator
from mrt.symbol.operators.activation import Relu
from tests.matrix_cases import CASES
from tests.quantization.networks import observe

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"
LEXED = re.compile(r"%(?!meta|inff)[A-Za-z_][A-Za-z0-9_]*|%\d+")
"""The names that the tokenizer of TVM's parser reads as one."""


def stated_types(text: str) -> dict[str, str]:
    """What the text's comments say of its bindings."""
    return dict(re.findall(r"^  %(\d+) = .*/\* ty=([^/]*) \*/;$", text, re.MULTILINE))


def printed(kind: Type | Sequence[Any]) -> str:
    """A type as Relay prints it."""
    if isinstance(kind, list):
        return f"({', '.join(map(printed, kind))}{',' if len(kind) == 1 else ''})"
    shape, dtype = kind
    return f"Tensor[({', '.join(map(str, shape))}), {dtype}]" if shape else dtype


def check(module: RelayModule) -> set[str]:
    """Names, types and parameters of a text, and that no rule moves a product; gives the operators that it calls."""
    (function,) = parse_module(module.text, "the text").functions.values()
    parameters = parse_parameters(module.params, "params")
    assert applicable_to(function, parameters) == []
    types, results, called = infer(function)
    stated = stated_types(module.text)
    assert stated == {name: printed(kind) for name, kind in types.items() if name.isdecimal()}
    declared = re.search(r"-> (.*) \{$", module.text, re.MULTILINE)
    assert declared is not None and declared[1] == printed(results if len(results) != 1 else results[0])
    names = [parameter.name for parameter in function.parameters]
    code = re.sub(r"^//.*$|/\*.*?\*/", "", module.text, flags=re.MULTILINE)
    assert all(LEXED.fullmatch(name) for name in re.findall(r"%[^\s,;():=]+", code))
    assert names[len(module.inputs) :] == [*parameters]
    assert all(printed((p.shape, p.dtype.name)) == printed(types[name]) for name, p in parameters.items())
    without_limits = re.sub(r"a_(min|max)=-?\d+f", "", code)
    assert not re.search(r"\bmeta\[|\bfloat\d|\b[\d.]+(e[+-]?\d+)?f\b", without_limits)
    return called


def test_every_call_is_typed_as_relay_declares() -> None:
    listed = re.search(r"^Relay operators that occur: (.*?)\.$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    weight, bias, image = np.ones((2, 3, 1), np.int8), np.ones(2, np.int32), TensorType((1, 3, 4), "int8")
    called = check(exported(graph_of("Convolution", image, weight, bias, kernel=(1,), num_filter=2)))
    for operator in ("left_shift", "floor_mod", "bitwise_and"):
        called |= check(exported(graph_of(operator, image, np.array(3, np.int8))))
    for case in CASES:
        ranges = observe(case.graph, [case.draw(1)])
        integer = expand_graph(case.graph, ranges, list(case.configs(8))[-1])
        model = assemble(integer, None, {})
        called |= check(exported(model.graph, model.inputs))
    assert called == set(re.split(r",\s+", listed[1]))


def test_form_of_a_text() -> None:
    """The whole text of a small graph, as Relay's printer would write it."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 2, 4, 4), "int8"))
    weight = builder.parameter("w", np.ones((3, 2, 3, 3), np.int8))
    bias = builder.parameter("b", np.array([1, 2, 3], np.int32))
    convolution = find_operator("Convolution")(kernel=(3, 3), num_filter=3, pad=(1, 1), stride=(2, 2))
    y = builder.apply(convolution, [x, weight, bias], "y")
    shift = builder.parameter("s", np.array(7, np.int8))
    shifted = builder.apply(find_operator("right_shift")(), [y, shift], "shifted")
    limited = builder.apply(find_operator("clip")(a_min=-127.0, a_max=127.0), [shifted], "limited")
    narrow = builder.apply(find_operator("Cast")(dtype="int8"), [limited], "narrow")
    text = exported(builder.graph([builder.apply(find_operator("Concat")(dim=1), [narrow, narrow], "out")])).text
    head, *_, body = text.partition("def ")
    assert head.splitlines()[0] == '#[version = "0.0.5"]'
    assert all(line.startswith("// mrt.") for line in head.splitlines()[1:])
    image = "Tensor[(1, 3, 2, 2), int32]"
    assert f"def {body}" == (
        "def @main(%x: Tensor[(1, 2, 4, 4), int8], %w: Tensor[(3, 2, 3, 3), int8], %b: Tensor[(3), int32])"
        " -> Tensor[(1, 6, 2, 2), int8] {\n"
        '  %0 = cast(%x, dtype="int32") /* ty=Tensor[(1, 2, 4, 4), int32] */;\n'
        '  %1 = cast(%w, dtype="int32") /* ty=Tensor[(3, 2, 3, 3), int32] */;\n'
        "  %2 = nn.conv2d(%0, %1, strides=[2, 2], padding=[1, 1, 1, 1], channels=3, kernel_size=[3, 3],"
        f' out_dtype="int32") /* ty={image} */;\n'
        f"  %3 = nn.bias_add(%2, %b) /* ty={image} */;\n"
        f"  %4 = right_shift(%3, 6 /* ty=int32 */) /* ty={image} */;\n"
        f"  %5 = add(%4, 1 /* ty=int32 */) /* ty={image} */;\n"
        f"  %6 = right_shift(%5, 1 /* ty=int32 */) /* ty={image} */;\n"
        f"  %7 = clip(%6, a_min=-127f, a_max=127f) /* ty={image} */;\n"
        f"  %8 = (%7, %7) /* ty=({image}, {image}) */;\n"
        "  %9 = concatenate(%8, axis=1) /* ty=Tensor[(1, 6, 2, 2), int32] */;\n"
        '  cast(%9, dtype="int8") /* ty=Tensor[(1, 6, 2, 2), int8] */\n'
        "}\n"
    )


AWKWARD = ("layer1.0/c:0", "layer1_0_c_0", "0bias", "_x", "if", "metadata", "inffeed", "größe", "%", "a b", "x*/y")


def test_names_that_relay_does_not_read() -> None:
    builder = GraphBuilder()
    inputs = [builder.input(name, TensorType((2,), "int32")) for name in AWKWARD]
    weights = [builder.parameter(f"{name}#", np.array([place, 5], np.int32)) for place, name in enumerate(AWKWARD)]
    graph = builder.graph([builder.apply(find_operator("add_n")(), [*inputs, *weights], "sum/0")])
    module = exported(graph, facts(graph, dict.fromkeys(AWKWARD, (-9, 9))))
    check(module)
    feeds = {name: np.array([place, -place], np.int32) for place, name in enumerate(AWKWARD)}
    ((found,),) = run(module, [feeds])
    assert found.tolist() == [2 * sum(range(len(AWKWARD))), 5 * len(AWKWARD) - sum(range(len(AWKWARD)))]


def test_plain_names_stay() -> None:
    assert [relay_name(name) for name in ("conv0_weight", "x", "B2")] == ["conv0_weight", "x", "B2"]


def test_outputs_that_are_inputs_or_parameters_or_stand_twice() -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((2, 3), "int8")), builder.parameter("w", np.array([5, -5], np.int8))
    y = builder.apply(Relu(), [x], "y")
    graph = builder.graph([x, y, weight, y, x])
    module = exported(graph)
    check(module)
    value = np.array([[-128, 0, 127], [1, -1, 5]], np.int8)
    (found,) = run(module, [{"x": value}])
    expected = [value, np.maximum(value, 0), np.array([5, -5]), np.maximum(value, 0), value]
    assert all((a == b).all() and a.dtype == np.int8 for a, b in zip(found, expected, strict=True))
    for outputs in ([x], [weight]):
        alone = exported(builder.graph(outputs))
        check(alone)
        ((found_alone,),) = run(alone, [{"x": value}])
        assert found_alone.dtype == np.int8


def test_an_input_that_nothing_reads_stays_an_argument() -> None:
    builder = GraphBuilder()
    builder.input("unread", TensorType((4,), "int16"))
    graph = builder.graph([builder.apply(Relu(), [builder.input("x", TensorType((2,), "int32"))], "y")])
    assert "def @main(%unread: Tensor[(4), int16], %x: Tensor[(2), int32])" in exported(graph).text


def test_chains_of_thousands() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((2,), "int32"))
    for _ in range(3000):
        symbol = builder.apply(find_operator("_rminus_scalar")(scalar=3), [symbol])
    graph = builder.graph([symbol])
    module = exported(graph, facts(graph, {"x": (-5, 5)}))
    assert module.text.count("subtract(") == 3000
    ((found,),) = run(module, [{"x": np.array([-5, 5], np.int32)}])
    assert found.tolist() == [-5, 5]


def test_bytes_of_a_parameter_file() -> None:
    """Field by field: header, names, and each tensor's device, rank, dtype, shape and size."""
    arrays = {"w": np.array([[1, -2, 3]], np.int16), "flag": np.array(True)}
    names = b"".join(struct.pack("<Q", len(name)) + name for name in (b"w", b"flag"))
    first = struct.pack("<QQiiiBBH2qq3h", 0xDD5E40F096B4A13F, 0, 1, 0, 2, 0, 16, 1, 1, 3, 6, 1, -2, 3)
    second = struct.pack("<QQiiiBBHqB", 0xDD5E40F096B4A13F, 0, 1, 0, 0, 1, 1, 1, 1, 1)
    two = struct.pack("<Q", 2)
    expected = bytes.fromhex("b79c04054f8de5f7") + bytes(8) + two + names + two + first + second
    assert params_to_bytes(arrays) == expected
    assert params_to_bytes({}) == bytes.fromhex("b79c04054f8de5f7") + bytes(24)


def test_comments_suffice_to_run_the_text_on_real_values(model: QuantizedModel, tmp_path: Path) -> None:
    parameters, path = model.to_relay(tmp_path / "net.relay")
    text = path.read_text()
    told = dict(re.findall(r"^// (mrt\.\w+) (.*)$", text, re.MULTILINE))
    assert told["mrt.digest"] == model.digest and told["mrt.format_version"] == "1"
    (given,), (taken,) = json.loads(told["mrt.inputs"]), json.loads(told["mrt.outputs"])
    x = np.random.default_rng(1).standard_normal(model.inputs[0].shape).astype(np.float32)
    steps = np.clip(np.rint(x / np.float32(given["scale"])) + given["zero_point"], given["lo"], given["hi"])
    graph = mrt.from_relay(text, parameters.read_bytes())
    (found,) = graph.evaluate({given["name"]: steps.astype(given["dtype"])})
    (expected,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    real = np.asarray(taken["scale"]) * (found.astype(np.float64) - taken["zero_point"])
    assert (real.astype(np.float32) == expected).all()
    assert mrt.load_model(path).outputs[0].shape == model.graph.outputs[0].shape


def test_both_files_or_none(model: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="missing"):
        model.to_relay(tmp_path / "missing" / "net.relay")
    with pytest.raises(ModelFileError, match=r"net\.params.*net\.relay"):
        model.to_relay(tmp_path / "net.params")
    (tmp_path / "net.params").mkdir()
    with pytest.raises(ModelFileError, match=r"net\.params"):
        model.to_relay(tmp_path / "net.relay")
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.params"]


def test_command(model: QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    for arguments in ([], ["--batch", "2", "--output", str(tmp_path / "two.relay")]):
        result = CliRunner().invoke(app, ["export", str(tmp_path / "saved"), "--format", "relay", *arguments])
        assert result.exit_code == 0 and model.digest in result.stdout, result.output
    first = (tmp_path / "saved" / "model.relay").read_text(), (tmp_path / "saved" / "model.params").read_bytes()
    model.to_relay(tmp_path / "again.relay")
    assert first == ((tmp_path / "again.relay").read_text(), (tmp_path / "again.params").read_bytes())
    assert "Tensor[(2, 2, 5, 5)" in (tmp_path / "two.relay").read_text()
    assert mrt.verify(tmp_path / "saved").digest == model.digest
