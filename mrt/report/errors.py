"""The errors of a model's tensors against float, as the file that evaluation leaves beside the model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from mrt.certificate import CERTIFICATE_FILE
from mrt.errors import ModelFileError
from mrt.evaluation import Counterpart, TensorError
from mrt.result_folder import current
from mrt.symbol.files import read_file
from mrt.symbol.limits import JSON_BYTES
from mrt.symbol.strict_json import StrictModel, parse_json, validated

ERRORS_FILE = "errors.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class ErrorFact:
    """The error of one integer tensor against the prepared float tensor `origin`.

    sqnr_db: None where there is no error or no signal. worst_steps: the largest error, in steps of the tensor.
    """

    origin: str
    sqnr_db: float | None
    worst_steps: float | None


class _Fact(StrictModel):
    """An `ErrorFact` as it stands in the file."""

    origin: str
    sqnr_db: float | None
    worst_steps: float | None


class _ErrorFile(StrictModel):
    """What stands in errors.json."""

    format_version: Literal[1]
    digest: str
    samples: int
    tensors: dict[str, _Fact]


@dataclass(frozen=True)
class ErrorTable:
    """Errors by integer tensor, over so many samples. digest: the SHA-256 of the certificate of the model measured."""

    digest: str
    samples: int
    tensors: Mapping[str, ErrorFact]

    @classmethod
    def of(
        cls, digest: str, samples: int, forms: tuple[Counterpart, ...], errors: Mapping[str, TensorError]
    ) -> ErrorTable:
        """The table of the forms that were measured; errors: by integer tensor."""
        facts = {
            form.name: ErrorFact(
                form.origin, _finite(errors[form.name].noise.sqnr_db), _finite(errors[form.name].worst_steps)
            )
            for form in forms
            if form.name in errors
        }
        return cls(digest, samples, facts)

    def of_origin(self, origin: str) -> tuple[str, ErrorFact] | None:
        """The integer tensor that was compared with a float tensor, and its error; None where none was."""
        return next(((name, fact) for name, fact in self.tensors.items() if fact.origin == origin), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "digest": self.digest,
            "samples": self.samples,
            "tensors": {
                name: {"origin": fact.origin, "sqnr_db": fact.sqnr_db, "worst_steps": fact.worst_steps}
                for name, fact in self.tensors.items()
            },
        }

    @classmethod
    def from_json(cls, content: bytes) -> ErrorTable:
        """The inverse of `to_json`; ModelFileError where a fact is missing, unknown, malformed or of another type."""
        data = validated(_ErrorFile, parse_json(content))
        facts = {
            name: ErrorFact(found.origin, found.sqnr_db, found.worst_steps) for name, found in data.tensors.items()
        }
        return cls(data.digest, data.samples, facts)


def read_errors(directory: str | os.PathLike[str]) -> ErrorTable | None:
    """The errors of the model saved in `directory`; None where none were measured, or those of another model.

    Raises ModelFileError if the file is malformed.
    """
    path = current(Path(directory), ERRORS_FILE)
    if not os.path.lexists(path):
        return None
    content = read_file(path, JSON_BYTES)
    try:
        table = ErrorTable.from_json(content)
    except ModelFileError as error:
        raise ModelFileError(f"{path} is malformed ({error}); run stage evaluate again or remove it") from None
    digest = sha256(read_file(current(Path(directory), CERTIFICATE_FILE), JSON_BYTES)).hexdigest()
    return table if table.digest == digest else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
