"""Templates filled: HTML that is escaped wherever it is not our own, with a policy that lets no other script run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mrt.report.page import names, numbers
from mrt.report.page.words import spelled

ASSETS = "assets"
DATA = "<data>"
"""Escaping leaves no such text anywhere else."""


def html(template: str, scripts: Sequence[str], view: Mapping[str, Any]) -> str:
    """A page that stands alone: a template of the assets with the style and the scripts in order; `DATA` where
    their data are to stand."""
    script = Markup("\n".join(_asset(name) for name in scripts))
    theme = Markup(_asset("theme.js"))
    return (
        _environment()
        .get_template(template)
        .render(
            view,
            css=Markup(_asset("report.css")),
            theme=theme,
            script=script,
            hashes=Markup(" ".join(map(_hash, (theme, script)))),
            data=Markup(DATA),
        )
    )


def _hash(script: str) -> str:
    """By what the policy of the page knows one of its scripts."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return (files("mrt.report.page") / ASSETS / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mrt.report.page", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    environment.globals.update(width=_width, ratio=_ratio)
    return environment


def _percentage(share: float) -> str:
    """A share of 1 as the width or place of a bar."""
    return f"{100 * min(1.0, max(0.0, share)):.4g}"


def _width(part: float, whole: float) -> str:
    return _percentage(part / whole if whole else 0.0)


def _ratio(reference: float, measured: float) -> str:
    """How much faster, or slower, than the reference."""
    if measured <= 0 or reference <= 0:
        return numbers.UNKNOWN
    return (
        f"{numbers.number(reference / measured)}× faster"
        if measured <= reference
        else (f"{numbers.number(measured / reference)}× slower")
    )


_FILTERS: dict[str, Callable[..., Any]] = {
    "number": numbers.number,
    "integer": numbers.integer,
    "percent": numbers.percent,
    "signed": numbers.signed,
    "decibels": numbers.decibels,
    "size": numbers.size,
    "duration": numbers.duration,
    "rate": numbers.rate,
    "percentage": _percentage,
    "row": names.row,
    "shortened": names.shortened,
    "spelled": spelled,
    "instruction": names.instruction,
    "spelled_length": lambda items, one: spelled(len(items), one),
}
