"""report.json: written with the digest of the model that it tells of, read only as that of the model beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mrt.errors import ModelFileError
from mrt.report.facts.network import Report
from mrt.result_folder import current
from mrt.symbol.files import read_file
from mrt.symbol.limits import JSON_BYTES
from mrt.symbol.strict_json import parse_json, validated

REPORT_FILE = "report.json"


def report_bytes(report: Report) -> bytes:
    """The content of the file, as small as JSON is without blanks."""
    facts = report.model_dump(mode="json")
    return (json.dumps(facts, separators=(",", ":"), allow_nan=False) + "\n").encode()


def read_report(directory: str | os.PathLike[str], digest: str | None = None) -> Report | None:
    """The report in a folder of results; None where there is none, or that of another model than `digest`.

    Raises ModelFileError if the file is malformed.
    """
    path = current(Path(directory), REPORT_FILE)
    if not os.path.lexists(path):
        return None
    try:
        report = validated(Report, parse_json(read_file(path, JSON_BYTES)))
    except ModelFileError as error:
        raise ModelFileError(f"{path} is malformed ({error}); run stage report again or remove it") from None
    return report if digest in (None, report.model.digest) else None
