"""Where the time of a compiled network goes."""

from __future__ import annotations

from pydantic import Field

from mrt.symbol.strict_json import StrictModel


class Function(StrictModel):
    """A compiled function, as it is called once.

    outputs: the integer symbols that it gives. operators: what it computes, in order. layer: the id of the layer that
    its first output belongs to; layers: of all that it computes a part of. seconds: of one call; share: of all
    functions. products: multiplications of one call; rate: of these in a second; of_peak: that over the machine's,
    None where it sums up no products. kernel: how products are formed, "" for none; instruction: the machine's, ""
    where none is chosen. memory: how results lie. ends: why what follows is not part of it. without: what its kernel
    does without, and why.
    """

    place: int
    outputs: list[str]
    operators: list[str]
    layer: int | None
    layers: list[int]
    seconds: float | None
    share: float | None
    products: int
    rate: float | None
    of_peak: float | None
    kernel: str
    instruction: str
    memory: list[str]
    ends: str
    without: list[str]


class MachineFacts(StrictModel):
    """cpu: its name. features: such as avx512vnni. peak: multiplications of bytes in a second of one core, measured;
    None where that was not. peak_instruction: by which."""

    cpu: str
    target: str
    cores: int
    peak: float | None
    peak_instruction: str


class PlannedTensor(StrictModel):
    """A piece of memory that functions `first` to `last`, both included, need.

    names: of the integer tensors that lie there, each written over the one before. layer: the id of the layer that the
    first belongs to. dtype, shape: of that as it lies, a border included. bytes: of them. offset: in the memory of all,
    or of the outputs where `is_output`.
    """

    names: list[str]
    layer: int | None
    dtype: str
    shape: list[int]
    bytes: int
    offset: int
    first: int
    last: int
    is_output: bool


class MemoryPlan(StrictModel):
    """Bytes that a run of the compiled network holds. arena: of the tensors in between, which lie over each other where
    they are not needed at once; None where that is not known. parameters: of what does not change. separate: what the
    tensors in between would take if each had its own place. outputs: of the memory of the outputs.

    alive: by function, the bytes of the tensors in between that it needs, or that lie there for later ones. peak: the
    most of these; peak_at: the place of the function at which it is. What the arena has beyond it are gaps. tensors: in
    the order in which they are made; of many the largest, of `tensor_count`.
    """

    arena: int | None
    parameters: int
    separate: int | None
    outputs: int = 0
    alive: list[int] = Field(default_factory=list)
    peak: int | None = None
    peak_at: int | None = None
    tensors: list[PlannedTensor] = Field(default_factory=list)
    tensor_count: int = 0


class Time(StrictModel):
    """functions: in the order of their calls. seconds: of all that were measured, each by itself. runs: of which the
    least time of each is taken. batch: the samples of a run, in so many threads."""

    functions: list[Function]
    seconds: float | None
    runs: int
    batch: int = 1
    threads: int = 1
    machine: MachineFacts
    memory: MemoryPlan
