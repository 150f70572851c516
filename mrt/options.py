"""What all options share: they are typed and frozen, and what is wrong in them is a ConfigError that names the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from mrt.errors import ConfigError
from mrt.messages import KeyPath, dotted, messages, short

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Kind = TypeVar("Kind", bound="Options")


class _Translating(ModelMetaclass):
    """Constructing from Python raises ConfigError. Validation of nested options does not come here, so that all that is
    wrong in a configuration is found at once."""

    def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **options)
        except ValidationError as error:
            raise _translated(error, cls, options) from None


class Options(BaseModel, metaclass=_Translating):
    """Options by keyword; ConfigError naming each that is wrong or unknown, what it is and what is needed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


def _translated(error: ValidationError, kind: Any, data: Any) -> ConfigError:
    where: Callable[[KeyPath], str] = lambda path: ": ".join(filter(None, (kind.__name__, dotted(path))))  # noqa: E731
    return ConfigError("; ".join(messages(error, kind, data, where)))
