"""A report as text for a pull request: what a reviewer asks for, as tables that GitHub and GitLab show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mrt.report.facts import Accuracy, Layer, Note, Output, ProvenTensor, Report
from mrt.report.page import sections
from mrt.report.page.layers import ranked
from mrt.report.page.numbers import UNKNOWN, decibels, duration, number, percent, rate, signed, size
from mrt.report.page.words import reason, spelled, verdict

MARKDOWN_FILE = "report.md"
WORST, SLOWEST = 10, 5
_SPECIAL = re.compile(r"[\\`*{}\[\]<>&|~]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.")
"""What means something in Markdown or HTML, or begins an address."""
_CALLED = re.compile("[@#](?=\\w)")
"""What calls a person or names an issue, escaped or not; a joiner of no width behind it hinders that."""


def report_markdown(report: Report, verbose: bool = False) -> str:
    """The head, the worst layers, headroom, the slowest functions, and the notes; internal ones when asked for."""
    parts = [f"# {text(report.model.name)}", text(verdict(report)), *_head(report)]
    parts += ["## Where accuracy went", *_worst(report)]
    parts += ["## Headroom under 32 bits", *_headroom(report)]
    parts += ["## Time", *_slowest(report)]
    said = sections.notes(report, verbose)["notes"]
    parts += ["## Notes", *map(_note, said)] if said else []
    parts.append(f"Certificate `{report.model.digest}`, MRT {text(report.model.version)}.")
    return "\n\n".join(parts) + "\n"


def text(words: str) -> str:
    """Words that mean nothing to Markdown, on one line."""
    return _CALLED.sub("\\g<0>\u2060", _SPECIAL.sub(r"\\\g<0>", _line(words)))


def code(name: str) -> str:
    """A foreign name as code, on one line; it may stand in a table."""
    clean = _line(name).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", clean)), default=0) + 1)
    space = " " if clean.startswith("`") or clean.endswith("`") or not clean else ""
    return f"{fence}{space}{clean}{space}{fence}"


def _line(words: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in words).split(" ")).strip()


def table(header: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table of cells that are Markdown; the first `left` columns stand at the left, the others at the right."""
    rule = ["---" if i < left else "--:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *lines))


def _why(report: Report, name: str) -> str:
    return text(reason(report, name, "It was not measured."))


def _head(report: Report) -> list[str]:
    accuracy, sizes, latency = report.accuracy, report.sizes, report.latency
    lines = []
    if accuracy is not None and accuracy.integer_top1 is not None:
        change = _change(accuracy)
        lines.append(("top-1", percent(accuracy.float_top1), f"{percent(accuracy.integer_top1)}{change}"))
    if accuracy is not None:
        lines.append(("same first class", "", percent(accuracy.agreement)))
        lines.append(("SQNR of the outputs", "", decibels(accuracy.sqnr)))
        lines.append(("samples", "", str(accuracy.samples)))
    lines += [(f"SQNR of {name}", "", decibels(sqnr)) for name, sqnr in _outputs(report.outputs or ())]
    lines.append(("parameters", size(sizes.float_parameters), size(sizes.integer_parameters)))
    lines.append(("compiled module", "", size(sizes.module)))
    if latency is not None:
        lines.append(("latency", duration(latency.float_network), duration(latency.integer)))
    lines.append(("certificate", "", text(report.proof.sentence)))
    found = [table(("", "float", "integer"), lines)]
    if latency is not None and latency.float_by:
        found.append(text(f"Latency of float: {latency.float_by}; both in turns."))
    absent = [name for name, value in (("accuracy", accuracy), ("latency", latency)) if value is None]
    return found + [f"{name.capitalize()}: {_why(report, name)}" for name in absent]


def _outputs(outputs: Sequence[Output]) -> Iterator[tuple[str, float | None]]:
    """The outputs and their parts, where there is more than one."""
    for output in outputs:
        if len(outputs) > 1 or output.parts:
            yield code(output.name), output.sqnr
        for part in output.parts:
            yield f"{code(output.name)}, {code(part.name)}", part.sqnr


def _change(accuracy: Accuracy) -> str:
    if accuracy.difference is None or accuracy.standard_error is None:
        return ""
    return f" ({signed(100 * accuracy.difference)} ± {number(100 * accuracy.standard_error)} points)"


def _worst(report: Report) -> list[str]:
    rows = ranked(report.layers)
    if not rows:
        return [_why(report, "layers.shares")]
    header = ("layer", "kind", "share of the error", "by its output", "by its weights", "isolated", "cumulative")
    lines = [
        (
            code(row.layer.name),
            text(row.title),
            percent(row.share),
            percent(row.output),
            percent(row.weights),
            *_sqnr(row.layer),
        )
        for row in rows[:WORST]
    ]
    rest = rows[WORST:]
    others = f"The other {spelled(len(rest), 'layer')} make {percent(sum(row.share for row in rest))}."
    return [table(header, lines, 2), *([others] if rest else [])]


def _sqnr(layer: Layer) -> tuple[str, str]:
    return (
        (UNKNOWN, UNKNOWN) if layer.sqnr is None else (decibels(layer.sqnr.isolated), decibels(layer.sqnr.cumulative))
    )


def _headroom(report: Report) -> list[str]:
    proof = report.proof
    spare = (
        "There are no sums." if proof.spare_bits is None else f"The widest sum leaves {number(proof.spare_bits)} bits."
    )
    products = spelled(proof.products, "rescaling product")
    said = f"{spare} Of {products} {proof.full_products} fill the last bit, on purpose." if proof.products else spare
    lines = [
        (code(layer.name), *_widths(tensor), text(tensor.rule)) for layer, tensor in sections.headroom(report)["sums"]
    ]
    return [said, *([table(("layer", "bits to spare", "proven", "seen", "follows from"), lines)] if lines else [])]


def _widths(tensor: ProvenTensor) -> tuple[str, str, str]:
    return number(32 - tensor.bits), number(tensor.bits), number(tensor.seen_bits)


def _slowest(report: Report) -> list[str]:
    if report.time is None or report.time.seconds is None:
        return [_why(report, "time")]
    calls = sections.time(report)["calls"][:SLOWEST]
    header = ("function", "what", "time", "share", "10⁹ products/s", "of peak", "instruction")
    lines = [
        (
            code(call.name),
            text(call.title),
            duration(call.function.seconds),
            percent(call.function.share),
            rate(call.function.rate),
            percent(call.function.of_peak, 0),
            text(call.instruction),
        )
        for call in calls
    ]
    functions = spelled(len(report.time.functions), "function")
    return [
        table(header, lines, 2),
        f"{functions}, {duration(report.time.seconds)} together; {text(report.time.machine.cpu)}.",
    ]


def _note(note: Note) -> str:
    said = f"- **{sections.MARKS[note.kind]}: {text(note.title)}** {text(note.text)}".rstrip()
    if not note.code:
        return said
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", note.code)), default=0))
    lines = "\n".join(f"  {line}" for line in (fence + "yaml", *note.code.splitlines(), fence))
    return f"{said}\n\n{lines}"
