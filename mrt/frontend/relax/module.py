"""The function that is read: found in the module, its parameters given values, its batch fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from mrt.errors import DataError, GraphError
from mrt.frontend.relax.node import static_sizes, to_array
from mrt.frontend.shared.inputs import FixedInput, ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.tvm.node import graph_dtype
from mrt.symbol import Array


@dataclass(frozen=True)
class ReadFunction:
    """A Relax function in normal form with static inputs, the values of its parameters by position, and its module."""

    name: str
    body: Any
    values: Mapping[int, Array]
    module: Any


def prepare_module(mod: Any, params: Mapping[str, Any] | Sequence[Any] | None, options: ReadOptions) -> ReadFunction:
    """The function "main" of the module, or its only one; raises as from_relax does."""
    if not isinstance(mod, tvm.IRModule):
        raise GraphError(
            f"{type(mod).__name__} is given; a tvm.IRModule is needed, such as tvm.relax.frontend's importers give"
        )
    name = _main(mod)
    if len(_functions(mod)) > 1:
        mod = relax.transform.InlinePrivateFunctions()(mod)
    mod = relax.transform.Normalize()(mod)
    values = _values(name, mod[name], params)
    sizes = _sizes_of_values(mod[name], values)
    if sizes:
        mod = relax.transform.BindSymbolicVars(sizes, name)(mod)
    fixed = _fixed(mod[name], values, options)
    sizes = _sizes_of_inputs(mod[name], fixed)
    if sizes:
        mod = relax.transform.BindSymbolicVars(sizes, name)(mod)
    values |= {index: item.value for index, item in fixed.items() if item.value is not None}
    _check_values(mod[name], values)
    return ReadFunction(name, mod[name], values, mod)


def _functions(mod: Any) -> list[str]:
    return [variable.name_hint for variable, body in mod.functions_items() if isinstance(body, relax.Function)]


def _main(mod: Any) -> str:
    names = _functions(mod)
    if "main" in names:
        return "main"
    if len(names) == 1:
        return str(names[0])
    found = ", ".join(sorted(names)) if names else "no Relax function at all"
    raise GraphError(f"the module holds {found}; one function called main is needed")


def _values(title: str, function: Any, params: Mapping[str, Any] | Sequence[Any] | None) -> dict[int, Array]:
    """The parameters' values by position."""
    names = [str(parameter.name) for parameter in function.params]
    attributes = function.attrs or {}
    if params is None:
        # TVM's TFLite importer leaves arrays there for functions of inputs only, whose constants stand in the body.
        only_inputs = "num_input" in attributes and int(attributes["num_input"]) == len(names)
        params = list(attributes["params"]) if "params" in attributes and not only_inputs else []
    if isinstance(params, Mapping) and isinstance(params.get(title), (list, tuple)):
        params = params[title]
    if not isinstance(params, (Mapping, Sequence)):
        raise DataError(f"params is of type {type(params).__name__}; a mapping of names to arrays or a list is needed")
    count = int(attributes["num_input"]) if "num_input" in attributes else len(names)
    if isinstance(params, Mapping):
        values = _by_name(title, names, params)
    else:
        values = _trailing(title, names, params, len(names) - count if "num_input" in attributes else len(names))
    missing = [name for index, name in enumerate(names) if index >= count and index not in values]
    if missing:
        raise DataError(
            f"function {title} has {count} inputs and then parameters, of which {len(missing)} have no value "
            f"({', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}); give them as params"
        )
    return values


def _by_name(title: str, names: Sequence[str], params: Mapping[str, Any]) -> dict[int, Array]:
    unknown = sorted(set(params) - set(names))
    if unknown:
        raise DataError(f"params names {', '.join(unknown[:3])}; the parameters of {title} are {', '.join(names)}")
    repeated = sorted({name for name in params if names.count(name) > 1})
    if repeated:
        raise DataError(f"several parameters of {title} are called {', '.join(repeated)}; give params as a list")
    return {names.index(name): to_array(value) for name, value in params.items()}


def _trailing(title: str, names: Sequence[str], params: Sequence[Any], most: int) -> dict[int, Array]:
    if len(params) > most:
        raise DataError(f"params has {len(params)} values; {title} takes {most} of the parameters {', '.join(names)}")
    first = len(names) - len(params)
    return {first + index: to_array(value) for index, value in enumerate(params)}


def _sizes_of_values(function: Any, values: Mapping[int, Array]) -> dict[Any, int]:
    """The symbolic sizes of parameters, as their values have them."""
    sizes: dict[Any, int] = {}
    for index, value in values.items():
        for dimension, size in zip(_shape(function.params[index]), value.shape, strict=False):
            if isinstance(dimension, tvm.ir.Var):
                sizes.setdefault(dimension, int(size))
    return sizes


def _fixed(function: Any, values: Mapping[int, Array], options: ReadOptions) -> dict[int, FixedInput]:
    """The inputs by position."""
    stated = {
        index: StatedInput(str(parameter.name), tuple(map(_size, _shape(parameter))), _value_dtype(parameter))
        for index, parameter in enumerate(function.params)
        if index not in values
    }
    return dict(zip(stated, fixed_inputs([*stated.values()], options), strict=True))


def _size(dimension: Any) -> int | str | None:
    if isinstance(dimension, tirx.IntImm):
        return int(dimension)
    return str(dimension.name) if isinstance(dimension, tvm.ir.Var) else None


def _value_dtype(parameter: Any) -> str:
    dtype = str(getattr(parameter.ty, "dtype", "float32"))
    return graph_dtype(dtype) if graph_dtype(dtype) == "float32" else dtype


def _sizes_of_inputs(function: Any, fixed: Mapping[int, FixedInput]) -> dict[Any, int]:
    return {
        dimension: size
        for index, item in fixed.items()
        for dimension, size in zip(_shape(function.params[index]), item.shape, strict=True)
        if isinstance(dimension, tvm.ir.Var)
    }


def _shape(parameter: Any) -> list[Any]:
    shape = getattr(parameter.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else []


def _check_values(function: Any, values: Mapping[int, Array]) -> None:
    """DataError where a value does not have its parameter's shape, or is an integer for a float or the reverse."""
    for index, value in values.items():
        parameter = function.params[index]
        sizes = static_sizes(getattr(parameter.ty, "shape", None))
        if sizes is not None and sizes != tuple(value.shape):
            raise DataError(f"parameter {parameter.name} is given with shape {tuple(value.shape)}; {sizes} is needed")
        needed = graph_dtype(str(parameter.ty.dtype))
        if (needed == "float32") != (value.dtype.kind == "f"):
            raise DataError(f"parameter {parameter.name} is given as {value.dtype}; {needed} is needed")
