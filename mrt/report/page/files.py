"""The files of a report, from that of its facts."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from mrt.certificate import CERTIFICATE_FILE
from mrt.errors import MRTError
from mrt.report.facts import REPORT_FILE, Report, read_report
from mrt.report.page.markdown import MARKDOWN_FILE, report_markdown
from mrt.report.page.page import HTML_FILE, report_html
from mrt.report.page.trials import with_trials
from mrt.result_folder import current
from mrt.symbol.files import read_file
from mrt.symbol.limits import JSON_BYTES


def page_files(report: Report, verbose: bool = False) -> dict[str, bytes]:
    """The contents of report.html and report.md, by their names. verbose: with the notes for developers."""
    pages = {HTML_FILE: report_html(report, verbose), MARKDOWN_FILE: report_markdown(report, verbose)}
    return {name: page.encode("utf-8", "replace") for name, page in pages.items()}


def saved_report(directory: Path) -> Report:
    """The facts that a run left in its folder; MRTError where there are none, malformed ones, or another model's."""
    if not directory.is_dir():
        raise MRTError(f"{directory} is no folder; mrt report takes the folder of results that mrt run wrote")
    report, certificate = read_report(directory), current(directory, CERTIFICATE_FILE)
    if report is not None and os.path.lexists(certificate):
        digest = sha256(read_file(certificate, JSON_BYTES)).hexdigest()
        if report.model.digest != digest:
            raise MRTError(
                f"{directory}: {REPORT_FILE} tells of the model {report.model.digest[:12]}…, beside it lies "
                f"{digest[:12]}…; mrt run CONFIG.yaml --from report measures that"
            )
    if report is None:
        path = current(directory, REPORT_FILE)
        raise MRTError(f"{path} is missing: nothing was measured here; mrt run CONFIG.yaml measures and writes it")
    return with_trials(report, directory)
