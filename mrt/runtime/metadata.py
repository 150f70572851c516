"""What a compiled module knows of itself, and the names of its functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from mrt.errors import ModelFileError
from mrt.module_record import Provenance
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import compact
from mrt.symbol.strict_json import Integers, StrictModel, parse_json, validated

FORMAT_VERSION = 6
MAIN, REAL, METADATA = "main", "real", "mrt_metadata"
"""The functions of a compiled module: of integers, of real values, and one that gives the facts as JSON in bytes."""
CALLS, MEMORY = "_calls", "_memory"
"""What is added to the name of a function for the one that does its work, and for the one that gives it memory."""
REQUEST = "request_tiles"
"""The function of code that uses tile registers which asks for them and gives 0, before any other is called."""


class KeptState(StrictModel):
    """A state of the integer network as a module knows it.

    All functions take and give its integers. input: its name. output: the place of the integer output that it holds in
    the next call; final_output: its place in what REAL gives, behind the tail. initial: the integers of one sample in
    the first call, (1, *shape), or one number that stands for all. in_place: whether the memory of the input may be
    that of the output, where all functions change what the next call needs; elsewhere they copy the state first.
    """

    input: str
    output: int
    final_output: int
    initial: Integers
    in_place: bool = False

    def to_json(self) -> dict[str, Any]:
        """The state as JSON's types."""
        facts = self.model_dump(exclude={"initial"}, exclude_defaults=True)
        return {**facts, "initial": compact(self.initial)}


class _MetadataFile(StrictModel):
    """What stands in a module."""

    format_version: Literal[6]
    made_from: dict[str, Any]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    constants: list[int]
    final_constants: list[int]
    states: list[KeptState] = Field(default_factory=list)
    output_names: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Metadata:
    """What a compiled module knows of itself.

    made_from: what it was compiled from; one call of its functions takes the batch that stands there, and as many calls
    as there are workers run side by side, each on one core, where there are so many samples. constants: places of the
    integer outputs that depend on no input and so have no batch; final_constants: the same of what a call gives, behind
    the tail. states: the inputs that hold an output of the call before. output_names: what the network calls the
    outputs of a call, behind the tail; empty where nobody says.
    """

    made_from: Provenance
    inputs: tuple[TensorQuantization, ...]
    outputs: tuple[TensorQuantization, ...]
    constants: tuple[int, ...] = ()
    final_constants: tuple[int, ...] = ()
    states: tuple[KeptState, ...] = ()
    output_names: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(
            {
                "format_version": FORMAT_VERSION,
                "made_from": self.made_from.model_dump(mode="json"),
                "inputs": [entry.to_json() for entry in self.inputs],
                "outputs": [entry.to_json() for entry in self.outputs],
                "constants": self.constants,
                "final_constants": self.final_constants,
                **({"states": [state.to_json() for state in self.states]} if self.states else {}),
                **({"output_names": self.output_names} if self.output_names else {}),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """The metadata in `text`; ModelFileError if it is none of this format."""
        try:
            data = validated(_MetadataFile, parse_json(text))
            made_from = Provenance.from_data(data.made_from)
            inputs, outputs = (tuple(map(TensorQuantization.from_json, part)) for part in (data.inputs, data.outputs))
        except (ModelFileError, ValueError) as error:
            raise ModelFileError(f"its metadata is malformed: {error}; compile it again") from None
        constants = tuple(data.constants), tuple(data.final_constants)
        return cls(made_from, inputs, outputs, *constants, tuple(data.states), tuple(data.output_names))
