"""TFLite files for tests, written with the schema's own builders, and what TensorFlow's interpreter makes of them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

KINDS = {
    **{"float32": "FLOAT32", "float16": "FLOAT16", "float64": "FLOAT64", "bool": "BOOL"},
    **{"int8": "INT8", "uint8": "UINT8", "int16": "INT16", "int32": "INT32", "int64": "INT64"},
}
"""The schema's type for each dtype."""

VECTORS = {"NewShape", "SqueezeDims"}
"""Options that are lists of integers."""


@dataclass
class File:
    """Collects tensors and operators of one model. Tensors are meant by the numbers that the methods give."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=lambda: [b""])
    inputs: list[int] = field(default_factory=list)

    def tensor(self, shape: Sequence[int], dtype: str = "float32", **fields: Any) -> int:
        """A tensor without values; `fields` are those of its table, and scales, zero_points and axis."""
        number = len(self.tensors)
        told = {"name": f"t{number}", "kind": KINDS.get(dtype, dtype), "shape": tuple(shape), "buffer": 0}
        self.tensors.append(told | fields)
        return number

    def input(self, shape: Sequence[int], dtype: str = "float32", **fields: Any) -> int:
        self.inputs.append(self.tensor(shape, dtype, **fields))
        return self.inputs[-1]

    def constant(self, value: Any, dtype: str | None = None, **fields: Any) -> int:
        array = np.asarray(value, dtype=dtype)
        self.buffers.append(array.tobytes())
        return self.tensor(array.shape, array.dtype.name, **{"buffer": len(self.buffers) - 1, **fields})

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        custom: bytes = b"",
        **attributes: Any,
    ) -> None:
        """An operator; `options` is the schema's name of their table, `attributes` are its fields.

        custom: the attributes of a custom operator.
        """
        told = {"kind": kind, "inputs": inputs, "outputs": outputs, "options": options, "attributes": attributes}
        self.operators.append(told | {"custom": custom})

    def another(self) -> File:
        """Another graph for the same file."""
        return File(buffers=self.buffers)

    def write(
        self,
        outputs: Sequence[int],
        version: int = 3,
        identifier: bytes = b"TFL3",
        others: Sequence[tuple[File, Sequence[int]]] = (),
        signature: Mapping[str, int] | None = None,
    ) -> bytes:
        """The file. others: graphs beside this one, and what their outputs are. signature: outputs by name."""
        builder = flatbuffers.Builder(1024)
        graphs = [(self, outputs), *others]
        codes = sorted({told["kind"] for graph, _ in graphs for told in graph.operators})
        model = table(
            builder,
            "Model",
            Version=version,
            OperatorCodes=offsets(builder, [_code(builder, kind) for kind in codes]),
            Subgraphs=offsets(builder, [_graph(builder, graph, given, codes) for graph, given in graphs]),
            Buffers=offsets(builder, [table(builder, "Buffer", Data=_bytes(builder, data)) for data in self.buffers]),
            SignatureDefs=None if signature is None else offsets(builder, [_signature(builder, signature)]),
        )
        builder.Finish(model, identifier)
        return bytes(builder.Output())


def table(builder: flatbuffers.Builder, kind: str, **fields: Any) -> int:
    """A table of the schema; fields that are None are left out."""
    module = importlib.import_module(f"tflite.{kind}")
    module.Start(builder)
    for name, value in fields.items():
        if value is not None:
            getattr(module, f"Add{name}")(builder, value)
    return int(module.End(builder))


def _graph(builder: flatbuffers.Builder, graph: File, outputs: Sequence[int], codes: Sequence[str]) -> int:
    return table(
        builder,
        "SubGraph",
        Tensors=offsets(builder, [_tensor(builder, told) for told in graph.tensors]),
        Inputs=vector(builder, graph.inputs),
        Outputs=vector(builder, outputs),
        Operators=offsets(builder, [_operator(builder, told, codes) for told in graph.operators]),
    )


def _signature(builder: flatbuffers.Builder, names: Mapping[str, int]) -> int:
    strings = {name: builder.CreateString(name) for name in names}
    outputs = [table(builder, "TensorMap", Name=strings[name], TensorIndex=index) for name, index in names.items()]
    return table(builder, "SignatureDef", Outputs=offsets(builder, outputs))


def _bytes(builder: flatbuffers.Builder, data: bytes) -> int | None:
    # CreateNumpyVector aligns to the element: interpreters map the bytes as floats.
    if not data:
        return None
    builder.StartVector(1, len(data), 16)
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())


def vector(builder: flatbuffers.Builder, numbers: Sequence[float] | None, dtype: str = "int32") -> int | None:
    return None if numbers is None else int(builder.CreateNumpyVector(np.asarray(numbers, dtype=dtype)))


def offsets(builder: flatbuffers.Builder, tables: Sequence[int]) -> int:
    """A vector of tables."""
    builder.StartVector(4, len(tables), 4)
    for offset in reversed(tables):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _code(builder: flatbuffers.Builder, kind: str) -> int:
    custom = builder.CreateString(kind.removeprefix("CUSTOM ")) if kind.startswith("CUSTOM ") else None
    number = getattr(tflite.BuiltinOperator, kind.split()[0])
    return table(
        builder,
        "OperatorCode",
        DeprecatedBuiltinCode=min(number, 127),
        BuiltinCode=number,
        CustomCode=custom,
        Version=2 if kind == "BROADCAST_TO" else 1,
    )


def _tensor(builder: flatbuffers.Builder, told: Mapping[str, Any]) -> int:
    quantization = None
    if "scales" in told:
        quantization = table(
            builder,
            "QuantizationParameters",
            Scale=vector(builder, told["scales"], "float32"),
            ZeroPoint=vector(builder, told.get("zero_points"), "int64"),
            QuantizedDimension=told.get("axis", 0),
        )
    return table(
        builder,
        "Tensor",
        Shape=vector(builder, told["shape"]),
        ShapeSignature=vector(builder, told.get("signature")),
        Type=getattr(tflite.TensorType, told["kind"]),
        Buffer=told["buffer"],
        Name=builder.CreateString(told["name"]),
        Quantization=quantization,
        Sparsity=_sparsity(builder, told["sparsity"]) if "sparsity" in told else None,
        HasRank=True,
        IsVariable=told.get("variable"),
    )


def _sparsity(builder: flatbuffers.Builder, told: Mapping[str, Any]) -> int:
    """order, block_map, and the levels: a size, or segments and indices as arrays of a dtype that the schema has."""

    def places(array: np.ndarray) -> tuple[int, int]:
        kind = {"int32": "Int32Vector", "uint16": "Uint16Vector", "uint8": "Uint8Vector"}[array.dtype.name]
        made = table(builder, kind, Values=vector(builder, array, array.dtype.name))
        return getattr(tflite.SparseIndexVector, kind), made

    def level(stored: int | tuple[np.ndarray, np.ndarray]) -> int:
        if isinstance(stored, int):
            return table(builder, "DimensionMetadata", Format=0, DenseSize=stored)
        (segments_kind, segments), (indices_kind, indices) = map(places, stored)
        return table(
            builder,
            "DimensionMetadata",
            Format=1,
            ArraySegmentsType=segments_kind,
            ArraySegments=segments,
            ArrayIndicesType=indices_kind,
            ArrayIndices=indices,
        )

    return table(
        builder,
        "SparsityParameters",
        TraversalOrder=vector(builder, told["order"]),
        BlockMap=vector(builder, told.get("block_map")),
        DimMetadata=offsets(builder, [level(stored) for stored in told["levels"]]),
    )


def _operator(builder: flatbuffers.Builder, told: Mapping[str, Any], codes: Sequence[str]) -> int:
    kind = told["options"]
    options = None
    if kind:
        fields = {
            name: vector(builder, value)
            if name in VECTORS
            else builder.CreateString(value)
            if isinstance(value, str)
            else value
            for name, value in told["attributes"].items()
        }
        options = table(builder, kind, **fields)
    custom = told.get("custom")
    return table(
        builder,
        "Operator",
        OpcodeIndex=codes.index(told["kind"]),
        Inputs=vector(builder, told["inputs"]),
        Outputs=vector(builder, told["outputs"]),
        BuiltinOptionsType=getattr(tflite.BuiltinOptions, kind) if kind else None,
        BuiltinOptions=options,
        CustomOptions=vector(builder, list(custom), "uint8") if custom else None,
    )


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in (-2, 2)."""
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")


def interpreted(content: bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What TensorFlow's own interpreter gives, by its own kernels; skips the test where it is not installed."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    machine = interpreter.Interpreter(
        model_content=content,
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    machine.allocate_tensors()
    for told, value in zip(machine.get_input_details(), feeds, strict=True):
        machine.set_tensor(told["index"], value)
    machine.invoke()
    return [machine.get_tensor(told["index"]) for told in machine.get_output_details()]


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Elements before and after an axis with which there is one window for each stride begun."""
    total = max((math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
