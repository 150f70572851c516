"""The errors of a model's tensors against float, as the file that evaluation leaves beside the model."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mrt.certificate import CERTIFICATE_FILE
from mrt.errors import ModelFileError
from mrt.evaluation import Counterpart, TensorError

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
    def from_json(cls, data: Mapping[str, Any]) -> ErrorTable:
        """The inverse of `to_json`; KeyError, TypeError or ValueError where a fact is missing or malformed."""
        if data["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version is {data['format_version']}, {FORMAT_VERSION} is needed")
        tensors = {
            str(name): ErrorFact(str(fact["origin"]), _number(fact["sqnr_db"]), _number(fact["worst_steps"]))
            for name, fact in data["tensors"].items()
        }
        return cls(str(data["digest"]), int(data["samples"]), tensors)


def read_errors(directory: str | os.PathLike[str]) -> ErrorTable | None:
    """The errors of the model saved in `directory`; None where none were measured, or those of another model.

    Raises ModelFileError if the file is malformed.
    """
    path = Path(directory) / ERRORS_FILE
    if not path.is_file():
        return None
    try:
        table = ErrorTable.from_json(json.loads(path.read_bytes()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{path} is malformed ({error}); run stage evaluate again or remove it") from None
    digest = sha256((Path(directory) / CERTIFICATE_FILE).read_bytes()).hexdigest()
    return table if table.digest == digest else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
