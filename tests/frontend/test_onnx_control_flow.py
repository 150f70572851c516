"""If, Loop and Scan of ONNX, decided while reading, against ONNX Runtime; what the data decide is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import assert_agrees, make_model, operators_of

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

NODE = helper.make_node


KINDS = {"on": TensorProto.BOOL, "still": TensorProto.BOOL, "step": TensorProto.INT64}


def value(name: str) -> onnx.ValueInfoProto:
    """A scalar where it is a truth value or an integer, else a float of a shape that is not stated."""
    return helper.make_tensor_value_info(name, KINDS.get(name, TensorProto.FLOAT), [] if name in KINDS else None)


def body(nodes: list, outputs: list[str], inputs: list[str] = (), constants: dict | None = None) -> onnx.GraphProto:
    """A graph within a node; `on` is a truth value, `step` an integer."""
    given, shown = ([value(name) for name in names] for names in (inputs, outputs))
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "body", given, shown, held)


def branches(then: list, other: list, condition: str = "on", outputs: tuple[str, ...] = ("y",)) -> onnx.NodeProto:
    """An If whose branches end in `result`."""
    graphs = {"then_branch": body(then, ["result"]), "else_branch": body(other, ["result"])}
    return NODE("If", [condition], outputs, **graphs)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_the_branch_of_a_constant_condition(on: bool, opset: int) -> None:
    """Both branches call their result alike, and read a value and a constant from outside."""
    node = branches([NODE("Relu", ["h"], ["result"])], [NODE("Mul", ["h", "two"], ["result"])])
    nodes = [NODE("Neg", ["x"], ["h"]), node]
    constants = {"on": np.asarray(on), "two": np.asarray(2, np.float32)}
    graph = assert_agrees(make_model(nodes, {"x": [2, 3]}, constants=constants, opset=opset))
    assert operators_of(graph)[1:] == ["relu" if on else "_mul_scalar"]


def test_a_condition_of_shapes_and_branches_within_branches() -> None:
    """The names of the inner branch hide nothing of the outer graph, in which the same name is made later."""
    inner = branches([NODE("Exp", ["h"], ["result"])], [NODE("Abs", ["h"], ["result"])], "same", ("result",))
    outer = branches([NODE("Neg", ["x"], ["h"]), inner], [NODE("Relu", ["x"], ["result"])], "same", ("chosen",))
    nodes = [NODE("Shape", ["x"], ["shape"]), NODE("Gather", ["shape", "one"], ["size"])]
    nodes += [NODE("Equal", ["size", "three"], ["same"]), outer, NODE("Tanh", ["chosen"], ["h"])]
    nodes += [NODE("Add", ["h", "chosen"], ["y"])]
    constants = {"one": np.asarray(1, np.int64), "three": np.asarray(3, np.int64)}
    assert_agrees(make_model(nodes, {"x": [2, 3]}, constants=constants))


def test_a_branch_that_gives_a_captured_value_and_a_constant_of_its_own() -> None:
    inner = [NODE("Add", ["x", "c"], ["sum"]), NODE("Identity", ["h"], ["same"])]
    then = body(inner, ["same", "c", "sum"], constants={"c": np.ones(3, np.float32)})
    node = NODE("If", ["on"], ["a", "b", "d"], then_branch=then, else_branch=then)
    nodes = [NODE("Neg", ["x"], ["h"]), node, NODE("Mul", ["a", "b"], ["e"]), NODE("Mul", ["e", "d"], ["y"])]
    assert_agrees(make_model(nodes, {"x": [2, 3]}, constants={"on": np.asarray(False)}))


def loop(trips: int, still: np.ndarray | None = None) -> onnx.ModelProto:
    """v ← relu(v) w + step, with v gathered over the steps."""
    nodes = [NODE("Relu", ["v"], ["r"]), NODE("MatMul", ["r", "w"], ["p"]), NODE("Cast", ["step"], ["s"], to=1)]
    nodes += [NODE("Add", ["p", "s"], ["next"]), NODE("Identity", ["next"], ["row"])]
    nodes += [NODE("Identity", ["on"], ["still"]) if still is None else NODE("Less", ["step", "most"], ["still"])]
    graph = body(nodes, ["still", "next", "row"], ["step", "on", "v"])
    node = NODE("Loop", ["trips", "", "x"], ["y", "rows"], body=graph)
    constants = {"w": np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)}
    constants |= {"trips": np.asarray(trips, np.int64)} | ({} if still is None else {"most": still})
    return make_model([node], {"x": [2, 3]}, ("y", "rows"), constants)


@pytest.mark.parametrize("still", [None, np.asarray(1, np.int64)])
def test_loops_whose_steps_are_counted(still: np.ndarray | None) -> None:
    """Of three steps or, where the body says when to end, of two."""
    assert_agrees(loop(3, still))


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("opset", [9, 17])
def test_scans_along_an_axis(backwards: int, opset: int) -> None:
    nodes = [NODE("Add", ["state", "part"], ["sum"]), NODE("Tanh", ["sum"], ["next"])]
    nodes += [NODE("Mul", ["next", "part"], ["shown"])]
    graph = body(nodes, ["next", "shown"], ["state", "part"])
    sides = {"scan_input_axes": [1], "scan_output_axes": [1]}
    sides |= {"scan_input_directions": [backwards], "scan_output_directions": [backwards]}
    node = NODE("Scan", ["h", "x"], ["last", "y"], body=graph, num_scan_inputs=1, **sides)
    assert_agrees(make_model([node], {"x": [2, 4, 3], "h": [2, 3]}, ("last", "y"), opset=opset))


@pytest.mark.parametrize("shape", [[2, 3], [3]])
@pytest.mark.parametrize("level", [-100, 0, 100])
def test_a_condition_of_real_data_chooses_between_both_results(shape: list[int], level: int) -> None:
    """A condition of more axes than the results does not give them its own."""
    other = [NODE("Neg", ["x"], ["n"]), NODE("Add", ["n", "level"], ["result"])]
    nodes = [NODE("ReduceSum", ["x"], ["sum"], keepdims=1), NODE("Reshape", ["sum", "wide"], ["total"])]
    nodes += [NODE("Greater", ["total", "level"], ["on"]), branches([NODE("Relu", ["x"], ["result"])], other)]
    constants = {"level": np.asarray(level, np.float32), "wide": np.ones(2, np.int64)}
    assert_agrees(make_model(nodes, {"x": shape}, constants=constants, opset=13))


def test_branches_of_unlike_shapes_are_no_choice() -> None:
    node = branches([NODE("Relu", ["x"], ["result"])], [NODE("ReduceSum", ["x"], ["result"])])
    nodes = [NODE("ReduceSum", ["x"], ["sum"], keepdims=0), NODE("Greater", ["sum", "zero"], ["on"]), node]
    model = make_model(nodes, {"x": [2, 3]}, constants={"zero": np.asarray(0, np.float32)})
    with pytest.raises(UnsupportedOperatorError, match=r"give y the shapes \(2, 3\) and \(1, 1\); equal ones"):
        from_onnx(model)


def test_what_the_data_decide_names_the_input_and_what_to_do() -> None:
    node = branches([NODE("Relu", ["x"], ["result"])], [NODE("Neg", ["x"], ["result"])])
    nodes = [NODE("Equal", ["rate", "fast"], ["on"]), node]
    model = make_model(
        nodes, {"x": [2, 3], "rate": []}, constants={"fast": np.asarray(16, np.int64)}, dtypes={"rate": 7}
    )
    with pytest.raises(UnsupportedOperatorError, match=r"If decided by rate ×1 \(y\).*(model.values)"):
        from_onnx(model)


def test_operators_of_the_branch_taken_are_refused_together_and_others_not_at_all() -> None:
    taken = [NODE("Det", ["x"], ["d"]), NODE("NonZero", ["d"], ["result"])]
    node = branches([NODE("Relu", ["x"], ["result"])], taken)
    model = make_model([node], {"x": [2, 3]}, constants={"on": np.asarray(True)})
    assert operators_of(from_onnx(model)) == ["relu"]
    model = make_model([node], {"x": [3, 3]}, constants={"on": np.asarray(False)})
    with pytest.raises(UnsupportedOperatorError, match="2 operators not covered: Det ×1 .*NonZero ×1"):
        from_onnx(model)


@pytest.mark.parametrize("trips", [1025, 10**15])
def test_too_many_steps_are_one_error(trips: int) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"y \(Loop\): has more than 1024 steps.*export"):
        from_onnx(loop(trips))
