"""What a certificate states: the bounds of every tensor, the digests of the files, the counts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from mrt.errors import ModelFileError, VerificationError
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import DTYPE_RANGES, analyse_bounds
from mrt.symbol.files import indented_json
from mrt.symbol.states import State, states_of
from mrt.symbol.strict_json import StrictModel, parse_json, validated

CERTIFICATE_FILE = "certificate.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TensorFact:
    """What is proven of one tensor: lo <= every element <= hi, `bits` wide in two's complement, by `rule`."""

    shape: tuple[int, ...]
    dtype: str
    lo: int
    hi: int
    bits: int
    rule: str


class _Fact(StrictModel):
    """A `TensorFact` as it stands in the file."""

    shape: list[int]
    dtype: str
    lo: int
    hi: int
    bits: int
    rule: str


class _CertificateFile(StrictModel):
    """What stands in certificate.json."""

    format_version: Literal[1]
    max_bits: int
    tensor_count: int
    operator_count: int
    operators: dict[str, int]
    files: dict[str, str]
    tensors: dict[str, _Fact]


@dataclass(frozen=True)
class Certificate:
    """Facts by tensor name, SHA-256 of each file of the model, and how many tensors and operators there are."""

    tensors: Mapping[str, TensorFact]
    files: Mapping[str, str]
    operators: Mapping[str, int]

    @property
    def max_bits(self) -> int:
        """The width of the widest tensor."""
        return max((fact.bits for fact in self.tensors.values()), default=0)

    def to_json(self) -> str:
        return indented_json(
            {
                "format_version": FORMAT_VERSION,
                "max_bits": self.max_bits,
                "tensor_count": len(self.tensors),
                "operator_count": sum(self.operators.values()),
                "operators": dict(self.operators),
                "files": dict(self.files),
                "tensors": {name: asdict(fact) for name, fact in self.tensors.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The certificate in `text`; VerificationError if it is none of this format."""
        try:
            data = validated(_CertificateFile, parse_json(text))
        except ModelFileError as error:
            raise VerificationError(f"{CERTIFICATE_FILE} is no certificate: {error}") from None
        tensors = {name: TensorFact(**dict(fact) | {"shape": tuple(fact.shape)}) for name, fact in data.tensors.items()}
        found = cls(tensors, data.files, data.operators)
        counts = (found.max_bits, len(tensors), sum(data.operators.values()))
        if counts != (data.max_bits, data.tensor_count, data.operator_count):
            raise VerificationError(f"{CERTIFICATE_FILE}: its counts do not match its tensors and operators")
        return found


def certify(graph: Graph, inputs: Mapping[str, Interval], files: Mapping[str, bytes]) -> Certificate:
    """The certificate of an integer graph and its files; `derive` says what is proven, and what is raised.

    files: the contents that the certificate vouches for, by name.
    """
    return vouch(graph, derive(graph, inputs), files)


def derive(graph: Graph, inputs: Mapping[str, Interval]) -> dict[str, TensorFact]:
    """Derives every bound of an integer graph from scratch.

    inputs: the interval that each input is held to.
    Raises VerificationError for a tensor that is not integer or has no elements, and for a state whose values may leave
    the interval that it is held to, QuantizationError for a tensor beyond 32 bits and for an input that is held to no
    interval of its dtype.
    """
    check_integer(graph)
    bounds = analyse_bounds(graph, inputs)
    states = states_of(graph)
    for state in states:
        _check_inductive(state, bounds)
    kept = {state.input for state in states}
    return {symbol.name: _fact(symbol, bounds[symbol.name], graph, kept) for symbol in graph.symbols}


def _check_inductive(state: State, bounds: Mapping[str, Interval]) -> None:
    """VerificationError unless a state holds at first what it is held to, and so next, if it does now.

    What is proven of one call then holds of every call of an endless stream.
    """
    held = bounds[state.name]
    ends = (("initial value", Interval.constant(state.initial)), ("next value", bounds[state.output.name]))
    for what, found in ends:
        if not ((held.lo <= found.lo).all() and (found.hi <= held.hi).all()):
            raise VerificationError(
                f"state {state.name}: its {what} lies in [{found.min}, {found.max}], and the state is held to "
                f"[{held.min}, {held.max}]; nothing is proven of a stream"
            )


def vouch(graph: Graph, tensors: Mapping[str, TensorFact], files: Mapping[str, bytes]) -> Certificate:
    """The certificate of the facts derived from a graph and of its files."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return Certificate(tensors, digests, graph.count_operators())


def check_integer(graph: Graph) -> None:
    """VerificationError naming the first tensor that is not an integer of at most 32 bits, or has no elements."""
    for symbol in (*graph.inputs, *graph.symbols):
        if not symbol.type.size:
            raise VerificationError(f"{symbol.name} ({symbol.op}) is {symbol.type}; at least one element is needed")
        if symbol.dtype not in DTYPE_RANGES:
            raise VerificationError(
                f"{symbol.name} ({symbol.op}) is {symbol.dtype}; integers of at most 32 bits are needed"
            )


def _fact(symbol: Symbol, interval: Interval, graph: Graph, kept: Collection[Symbol]) -> TensorFact:
    if not symbol.is_variable:
        rule = f"bounds of {symbol.op}"
    elif symbol in kept:
        rule = "range of a state, by induction"
    else:
        rule = "input range" if graph.value(symbol) is None else "parameter values"
    lo, hi = int(interval.min), int(interval.max)
    return TensorFact(symbol.shape, symbol.dtype, lo, hi, interval.bits, rule)
