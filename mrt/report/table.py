"""Tables as plain text, for terminals that are none."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(lines: Sequence[Sequence[str]], at_right: Collection[str]) -> str:
    """The lines, of one cell for each column, in aligned columns, however wide; the first line is the header.

    at_right: the names of the columns whose cells stand at the right.
    """
    header, wide = lines[0], widths(lines)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in at_right else cell.ljust(width)
            for cell, width, column in zip(line, wide, header, strict=True)
        ).rstrip()
        for line in lines
    )


def widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """The characters that each column needs."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]
