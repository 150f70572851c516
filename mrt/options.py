"""What all options share: they are typed and frozen, and what is wrong in them is a ConfigError that names the key."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from mrt.errors import ConfigError
from mrt.messages import KeyPath, dotted, listed, messages, short

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Kind = TypeVar("Kind", bound="Options")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Translating(ModelMetaclass):
    """Constructing from Python raises ConfigError. Validation of nested options does not come here, so that all that is
    wrong in a configuration is found at once."""

    def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805
        if args:
            keys = listed(cls)  # type: ignore[arg-type]  # a metaclass does not know its classes
            raise ConfigError(f"{cls.__name__} is given {short(args[0])} without a key; give KEY=value, of {keys}")
        try:
            return super().__call__(*args, **options)
        except ValidationError as error:
            raise _translated(error, cls, options) from None


class Options(BaseModel, metaclass=_Translating):
    """Options by keyword; ConfigError naming each that is wrong or unknown, what it is and what is needed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        raise ConfigError(f"{kind}: {name} cannot be set, options do not change; make others, {kind}({name}=…)")

    @classmethod
    def model_validate_json(cls, json_data: Any, **options: Any) -> Self:
        """The options in a JSON text; ConfigError as above."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            try:
                data = json.loads(json_data)
            except (TypeError, ValueError):
                data = json_data
            raise _translated(error, cls, data) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """The options in a mapping; ConfigError as above."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _translated(error, cls, obj) from None


def checked(value: object, kind: type[Kind], name: str) -> Kind:
    """The options passed as argument `name`, the defaults for None; ConfigError for another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {short(value)}; an mrt.{kind.__name__}, or None, is needed")
    return value


def naming_keywords(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which answers a keyword that it does not take by a ConfigError that names the nearest one."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        for name in options:
            if name not in signature.parameters:
                near = get_close_matches(name, signature.parameters, 1, cutoff=0.5)
                meant = f"did you mean {near[0]}?" if near else f"its arguments are {', '.join(signature.parameters)}"
                raise ConfigError(f"{function.__name__}: {name} is no argument (found {short(options[name])}); {meant}")
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise ConfigError(f"{function.__name__}: {error}; its arguments are {signature}") from None
        return function(*args, **options)

    return call


def _translated(error: ValidationError, kind: Any, data: Any) -> ConfigError:
    where: Callable[[KeyPath], str] = lambda path: ": ".join(filter(None, (kind.__name__, dotted(path))))  # noqa: E731
    return ConfigError("; ".join(messages(error, kind, data, where)))
