"""What a user says of a model file: the sizes that it leaves open, and the values that stand in place of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.refusals import check_size
from mrt.messages import short
from mrt.symbol import Array
from mrt.symbol.rebatch import check_batch

Shapes = Mapping[str, Sequence[int]]
"""Shapes of inputs by their names."""
Values = Mapping[str, Any]
"""Numbers, nested lists of them or arrays by the names of inputs."""
BatchAxes = Mapping[str, "int | None"]
"""The batch axis by the name of an input or output; None for one without, whose network takes one sample at a time."""

_NAMES_SHOWN = 8


@dataclass(frozen=True)
class ReadOptions:
    """What a user says of a model file.

    batch: the size of a dynamic batch axis, the first unless batch_axes says another. shapes: of inputs, which fix what
    else the file leaves open. values: arrays of inputs that are none, since they have the same value at every run.
    split: names or fnmatch patterns of operators behind which what cannot be read is left out. batch_axes: of inputs
    and outputs whose batch is not axis 0. random_params: whether parameters that have no value are drawn.
    """

    batch: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    split: tuple[str, ...] = ()
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    random_params: bool = False


def read_options(
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
    batch_axes: BatchAxes | None = None,
    random_params: bool = False,
) -> ReadOptions:
    """The options as a user gives them, checked; GraphError naming what is wrong."""
    check_batch(batch)
    if isinstance(split, (str, bytes)) or not isinstance(split, Iterable):
        raise GraphError(f"split is {short(split)}; a sequence of names or patterns of operators is needed")
    patterns = tuple(split)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise GraphError(f"split is {short(patterns)}; names or patterns of operators are needed")
    if not isinstance(random_params, bool):
        raise GraphError(f"random_params is {short(random_params)}; True or False is needed")
    checked = _checked_shapes(shapes), _checked_values(values), patterns, checked_batch_axes(batch_axes)
    return ReadOptions(batch, *checked, random_params)


@dataclass(frozen=True)
class StatedInput:
    """An input as a file states it.

    sizes: a number, the name of a symbolic size, or None, of each axis; None where the file does not even say how many
    there are. dtype: NumPy's name of the file's dtype, in which a value is taken.
    """

    name: str
    sizes: tuple[int | str | None, ...] | None
    dtype: str = "float32"


@dataclass(frozen=True)
class FixedInput:
    """An input of known shape. value: what stands in its place; None where it stays an input."""

    name: str
    shape: tuple[int, ...]
    value: Array | None = None


def fixed_inputs(inputs: Sequence[StatedInput], options: ReadOptions) -> list[FixedInput]:
    """The inputs with every size known.

    1. A shape that is given holds, and so does that of a value with axes. It must agree with the sizes that the file
       states.
    2. A symbolic size is the same wherever its name stands.
    3. A batch axis that is still open, the first unless another is given, is the batch.
    4. A value without axes fills the shape that its input then has.

    Raises GraphError for a name that is no input, a shape or value that does not fit, and listing every size that is
    still open, with the option that fixes it.
    """
    _check_names(inputs, options)
    given = {stated.name: _given_shape(stated, options) for stated in inputs}
    lengths = _symbolic_lengths(inputs, given, options)
    sizes = {stated.name: given[stated.name] or _sizes(stated, lengths, options) for stated in inputs}
    still_open = [stated for stated in inputs if (found := sizes[stated.name]) is None or None in found]
    if still_open:
        raise GraphError(_open_sizes(still_open, sizes))
    fixed = []
    for stated in inputs:
        shape = tuple(size for size in sizes[stated.name] or () if size is not None)
        value = options.values.get(stated.name)
        fixed.append(FixedInput(stated.name, shape, None if value is None else _as_stated(stated, shape, value)))
    return fixed


def _check_names(inputs: Sequence[StatedInput], options: ReadOptions) -> None:
    names = [stated.name for stated in inputs]
    for what, given in (("shapes", options.shapes), ("values", options.values)):
        unknown = [name for name in given if name not in names]
        if unknown:
            more = ", …" if len(names) > _NAMES_SHOWN else ""
            known = f"the inputs are {', '.join(names[:_NAMES_SHOWN])}{more}" if names else "there are no inputs"
            raise GraphError(f"{what} are given for {', '.join(unknown)}, which no input is called; {known}")


def _given_shape(stated: StatedInput, options: ReadOptions) -> tuple[int, ...] | None:
    """The shape that the user gives, by itself or with a value; GraphError where the file states another."""
    shape, value = options.shapes.get(stated.name), options.values.get(stated.name)
    if value is not None and value.ndim:
        if shape not in (None, value.shape):
            raise GraphError(f"input {stated.name}: the shape {shape} is given, and a value of shape {value.shape}")
        shape = value.shape
    if shape is None or stated.sizes is None:
        return shape
    fits = len(shape) == len(stated.sizes) and all(
        size == length for size, length in zip(stated.sizes, shape, strict=True) if isinstance(size, int)
    )
    if not fits:
        raise GraphError(f"input {stated.name}: the shape {shape} is given; the file needs {_shown(stated.sizes)}")
    return shape


def _symbolic_lengths(
    inputs: Sequence[StatedInput], given: Mapping[str, tuple[int, ...] | None], options: ReadOptions
) -> dict[str, int]:
    """The symbolic sizes that a given shape fixes, and those that are a batch; GraphError where two shapes differ."""
    fixed_by: dict[str, tuple[int, str]] = {}
    for stated in inputs:
        for axis, (symbol, length) in enumerate(zip(stated.sizes or (), given[stated.name] or (), strict=False)):
            if not isinstance(symbol, str):
                continue
            known, other = fixed_by.setdefault(symbol, (length, stated.name))
            if known != length:
                raise GraphError(
                    f"input {stated.name}: {length} is given for axis {axis}, which the file calls {symbol}; "
                    f"{other} gives {known} for that"
                )
    lengths = {symbol: length for symbol, (length, _) in fixed_by.items()}
    for stated in inputs:
        batched = _batch_axis(stated, options)
        name = stated.sizes[batched] if stated.sizes and batched is not None else None
        if isinstance(name, str):
            lengths.setdefault(name, options.batch)
    return lengths


def _sizes(stated: StatedInput, lengths: Mapping[str, int], options: ReadOptions) -> tuple[int | None, ...] | None:
    if stated.sizes is None:
        return None
    known = [lengths.get(size) if isinstance(size, str) else size for size in stated.sizes]
    batched = _batch_axis(stated, options)
    return tuple(options.batch if axis == batched and size is None else size for axis, size in enumerate(known))


def _batch_axis(stated: StatedInput, options: ReadOptions) -> int | None:
    """The axis of an input that is the batch, counted from the front; None where it has none."""
    axis, rank = options.batch_axes.get(stated.name, 0), len(stated.sizes or ())
    if axis is None or not rank:
        return None
    if not -rank <= axis < rank:
        raise GraphError(f"input {stated.name}: the batch axis is given as {axis}; the file has {rank} axes")
    return axis % rank


def _as_stated(stated: StatedInput, shape: tuple[int, ...], value: Array) -> Array:
    """A value in the shape and the dtype of its input; GraphError where it does not fit them."""
    target = np.dtype(stated.dtype)
    with np.errstate(all="ignore"):
        array = value.astype(target)
        is_kept = np.isfinite(array) | ~np.isfinite(value) if target.kind == "f" else array == value
    if not np.all(is_kept):
        wrong = np.asarray(value)[~is_kept].reshape(-1)[0]
        raise GraphError(f"input {stated.name}: the value {wrong} is given, which its dtype {target} does not hold")
    return array if array.ndim else np.array(np.broadcast_to(array, shape))


def _open_sizes(inputs: Sequence[StatedInput], sizes: Mapping[str, Sequence[int | None] | None]) -> str:
    """Every size that is still open, and the options that fix them."""
    found, shapes = [], []
    for stated in inputs:
        known = sizes[stated.name]
        if stated.sizes is None or known is None:
            found.append(f"input {stated.name} states no shape")
            shapes.append((stated.name, ["SIZE", "…"]))
            continue
        axes = [axis for axis, size in enumerate(known) if size is None]
        names = {axis: _symbol(stated.sizes[axis], axis) for axis in axes}
        found.append(
            f"input {stated.name} has the dynamic {'axes' if len(axes) > 1 else 'axis'} "
            + ", ".join(f"{axis} ({name})" for axis, name in names.items())
        )
        shapes.append((stated.name, [names.get(axis, str(size)) for axis, size in enumerate(known)]))
    options = " ".join(f"--shape {name}={','.join(parts)}" for name, parts in shapes)
    keys = ", ".join(f"{name}: [{', '.join(parts)}]" for name, parts in shapes)
    return (
        f"{'; '.join(found)}; only axis 0, the batch, may stay open: give {options} with numbers for the names "
        f"(or model.shapes: {{{keys}}}, or shapes= in Python){_OTHER_AXIS}"
    )


_OTHER_AXIS = "; where the batch is another axis: model.batch_axes: {NAME: AXIS}, or batch_axes= in Python"


def _symbol(size: int | str | None, axis: int) -> str:
    return size if isinstance(size, str) else f"SIZE{axis}"


def _shown(sizes: Sequence[int | str | None]) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in sizes)
    return f"({inner}{',' * (len(sizes) == 1)})"


def _checked_shapes(shapes: object) -> dict[str, tuple[int, ...]]:
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise GraphError(f"shapes is {short(shapes)}; a mapping of input names to shapes, or None, is needed")
    found = {}
    for name, shape in shapes.items():
        if not isinstance(name, str) or isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
            raise GraphError(f"the shape given for input {short(name)} is {short(shape)}; (1, 3, 32, 32) is one")
        if not all(_is_length(size) for size in shape):
            raise GraphError(f"the shape given for input {name} is {short(tuple(shape))}; positive lengths are needed")
        check_size(f"input {name}", shape)
        found[name] = tuple(int(size) for size in shape)
    return found


def _is_length(size: object) -> bool:
    return isinstance(size, (int, np.integer)) and not isinstance(size, bool) and bool(size > 0)


def _checked_values(values: object) -> dict[str, Array]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise GraphError(f"values is {short(values)}; a mapping of input names to values, or None, is needed")
    found = {}
    for name, value in values.items():
        try:
            array = np.asarray(value)
        except Exception as error:  # tensors of other libraries raise what they like
            raise GraphError(f"the value given for input {name} is no array: {error}") from None
        if array.dtype.kind not in "biuf" or not array.size:
            raise GraphError(f"the value given for input {name} is {short(value)}; numbers are needed")
        found[name] = array
    return found


def checked_batch_axes(axes: object) -> dict[str, int | None]:
    """The batch axes as a user gives them; GraphError where they are no axes by name."""
    if axes is None:
        return {}
    if not isinstance(axes, Mapping) or not all(isinstance(name, str) for name in axes):
        raise GraphError(f"batch_axes is {short(axes)}; a mapping of names of inputs and outputs to axes is needed")
    for name, axis in axes.items():
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, (int, np.integer))):
            raise GraphError(f"the batch axis given for {name} is {short(axis)}; a whole number, or None, is needed")
    return {name: None if axis is None else int(axis) for name, axis in axes.items()}
