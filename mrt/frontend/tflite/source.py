"""Reading the tables of a TFLite file: the flatbuffer, of which nothing is trusted, as plain records."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from mrt.errors import ModelFileError
from mrt.frontend.tflite.files import StoredModel, StoredOperator, Tensor, names_of, numbers, reading
from mrt.frontend.tflite.signature import looks_like_tflite
from mrt.frontend.tflite.sparsity import stored_sparsity
from mrt.paths import as_path

_VERSION = 3
_SHARED = 16
"""How often the bytes of a file may be read: writers store equal names and shapes once, a damaged file reads one
place for everything."""

_OPERATORS = names_of(tflite.BuiltinOperator)
_OPTIONS = names_of(tflite.BuiltinOptions)
_TYPES = names_of(tflite.TensorType)
_WITHOUT_OUTPUT = ("CALL_ONCE", "ASSIGN_VARIABLE")
_CALLERS = ("CALL_ONCE", "IF")
"""The operators that run other graphs of the file, where these are read."""
_INDICES = (None, tflite.Int32Vector, tflite.Uint16Vector, tflite.Uint8Vector)
"""What holds the places of sparse tensors, in the order of the schema's SparseIndexVector."""


def read_model(model: str | os.PathLike[str] | bytes) -> StoredModel:
    """The main graph of a file, given as a path or as its bytes, and the other graphs where operators run them.

    Raises ModelFileError where it is no whole TFLite model.
    """
    title, content = (
        ("the model", model) if isinstance(model, bytes) else _content(as_path(model, "model", to_read=True))
    )
    if not looks_like_tflite(content):
        raise ModelFileError(f"{title} is no TFLite model: bytes 4 to 7 are not TFL3")
    return reading(title, lambda: _Source(title, content).model())


def _content(path: Path) -> tuple[str, bytes]:
    try:
        return str(path), path.read_bytes()
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder; a TFLite file is needed") from None
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist; give the path of a TFLite file") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None


class _Source:
    """Reads the tables of one file, in time and memory that its length bounds."""

    def __init__(self, title: str, content: bytes) -> None:
        self._title = title
        self._content = content
        self._root = tflite.Model.GetRootAsModel(content, 0)
        self._left = _SHARED * len(content)

    def model(self) -> StoredModel:
        if self._root.Version() != _VERSION:
            raise ModelFileError(f"{self._title} is of schema version {self._root.Version()}; {_VERSION} is read")
        if not self._count(self._root.SubgraphsLength()):
            raise ModelFileError(f"{self._title} holds no graph; export it again")
        kinds = [
            self._kind(self._root.OperatorCodes(index))
            for index in range(self._count(self._root.OperatorCodesLength()))
        ]
        model = replace(self._graph(0, kinds), signature=self._signature())
        if not model.outputs:
            raise ModelFileError(f"{self._title} has no outputs; export it with at least one")
        if not any(operator.kind in _CALLERS for operator in model.operators):
            return model
        return replace(
            model, others=tuple(self._graph(index, kinds) for index in range(1, self._root.SubgraphsLength()))
        )

    def _signature(self) -> dict[int, str]:
        """The names of outputs by their tensors, as the first signature of the main graph has them."""
        for index in range(self._count(self._root.SignatureDefsLength())):
            signature = self._root.SignatureDefs(index)
            if signature.SubgraphIndex() == 0:
                entries = [signature.Outputs(each) for each in range(self._count(signature.OutputsLength()))]
                names = {entry.TensorIndex(): (entry.Name() or b"").decode() for entry in entries}
                return {tensor: name for tensor, name in names.items() if name.strip() and name.isprintable()}
        return {}

    def _graph(self, index: int, kinds: list[str]) -> StoredModel:
        graph = self._root.Subgraphs(index)
        tensors = tuple(
            self._tensor(graph.Tensors(index), index) for index in range(self._count(graph.TensorsLength()))
        )
        operators = tuple(
            self._operator(graph.Operators(index), kinds, len(tensors))
            for index in range(self._count(graph.OperatorsLength()))
        )
        inputs, outputs = (
            self._indices(numbers, len(tensors), 0) for numbers in (graph.InputsAsNumpy(), graph.OutputsAsNumpy())
        )
        return StoredModel(self._title, tensors, operators, inputs, outputs, self._content, self._root)

    def _count(self, count: int) -> int:
        """A number of tables, each of which an offset of four bytes stands for."""
        self._spend(4 * count)
        return int(count)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("it states more than its bytes can hold")

    def _vector(self, array: Any) -> tuple[Any, ...]:
        self._spend(array.nbytes if isinstance(array, np.ndarray) else 0)
        return numbers(array)

    def _text(self, text: bytes | None) -> str:
        self._spend(len(text or b""))
        decoded = (text or b"").decode()
        if any(ord(letter) < ord(" ") for letter in decoded):
            raise ValueError(f"the name {decoded!r} is no text on one line")
        return decoded

    def _tensor(self, table: Any, index: int) -> Tensor:
        kind, shape = table.Type(), self._vector(table.ShapeAsNumpy())
        if kind not in _TYPES:
            raise ValueError(f"tensor {index} is of type {kind}, which there is not")
        if min(shape, default=0) < 0:
            raise ValueError(f"tensor {index} has shape {shape}")
        signature = self._vector(table.ShapeSignatureAsNumpy()) or shape
        if len(signature) != len(shape) or any(s not in (n, -1) for s, n in zip(signature, shape, strict=True)):
            raise ValueError(f"tensor {index} has shape {shape}, but signature {signature}")
        quantization, sparsity = table.Quantization(), table.Sparsity()
        given = quantization is not None
        has_details = given and bool(quantization.DetailsType())
        return Tensor(
            name=self._text(table.Name()) or f"tensor{index}",
            kind=_TYPES[kind],
            shape=shape,
            sizes=tuple(None if size < 0 else size for size in signature),
            buffer=table.Buffer(),
            scales=self._vector(quantization.ScaleAsNumpy()) if given else (),
            zero_points=self._vector(quantization.ZeroPointAsNumpy()) if given else (),
            channel_axis=quantization.QuantizedDimension() if given else 0,
            flaw="with a quantization of its own" if has_details else "",
            sparsity=None if sparsity is None else stored_sparsity(sparsity, _INDICES, self._vector),
            is_variable=bool(table.IsVariable()),
        )

    def _kind(self, code: Any) -> str:
        """An operator's name. Its number stands in one of two fields; the older one has 8 bits."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if number not in _OPERATORS:
            raise ValueError(f"operator code {number} is none of the schema's")
        custom = self._text(code.CustomCode())
        return f"CUSTOM {custom}".strip() if number == tflite.BuiltinOperator.CUSTOM else _OPERATORS[number]

    def _operator(self, table: Any, kinds: list[str], tensors: int) -> StoredOperator:
        code, options = table.OpcodeIndex(), table.BuiltinOptionsType()
        if not 0 <= code < len(kinds) or options not in _OPTIONS:
            raise ValueError(f"an operator has code {code} and options {options}")
        outputs = self._indices(table.OutputsAsNumpy(), tensors, 0)
        if not outputs and kinds[code] not in _WITHOUT_OUTPUT:
            raise ValueError(f"{kinds[code]} has no output")
        return StoredOperator(
            kinds[code],
            self._indices(table.InputsAsNumpy(), tensors, -1),
            outputs,
            _OPTIONS[options],
            table.BuiltinOptions(),
            bytes(self._vector(table.CustomOptionsAsNumpy())),
        )

    def _indices(self, array: Any, tensors: int, lowest: int) -> tuple[int, ...]:
        numbers = self._vector(array)
        if any(not lowest <= number < tensors for number in numbers):
            raise ValueError(f"tensors {numbers[:8]} are named, of {tensors}")
        return numbers
