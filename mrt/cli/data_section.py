"""The section `data` of a configuration, from what `mrt quantize` is told of the data; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mrt.cli.data_source import KINDS, LABELS, DataSource, kind_of, read_source, stated_forms, takes
from mrt.errors import ConfigError
from mrt.messages import KeyPath
from mrt.symbol import Graph
from mrt.symbol.states import fed_inputs, states_of

CALIBRATED, SCORED, LEAST = 256, 500, 16
"""How many samples calibrate and are scored at most, of those that their owner has not parted; of fewer than `LEAST`
none are held out."""
SEED = 0
SCORING = "--test"


@dataclass(frozen=True)
class Section:
    """The section, the options that its keys come from, and what to say of it."""

    data: Mapping[str, Any]
    places: Mapping[KeyPath, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def data_section(
    data: str | None, test: str | None, keys: Mapping[str, Any], samples: int | None, graph: Graph
) -> Section:
    """The section for a network.

    data: where samples are. test: where those are that are scored, if they are others. keys: what is said of them, by
    the keys of the section. samples: how many calibrate. Raises ConfigError or DataError naming the option that is
    wrong or missing.
    """
    inputs = {symbol.name: symbol.type for symbol in fed_inputs(graph)}
    forms = stated_forms(graph)
    most, wheres = CALIBRATED + SCORED, _wheres(data, test)
    read = {
        option: read_source(
            option, where, _keys_of(option, keys, wheres), inputs, most, forms, _is_scored(option, wheres)
        )
        for option, where in wheres.items()
    }
    in_order = bool(states_of(graph))
    remarks = [each.remark for each in read.values() if each.remark]
    if "--data" not in read:
        parts = {"test": read["--test"].keys} if "--test" in read else {}
    elif "--test" in read:
        parts = {"calibration": _calibrating(read["--data"], samples, in_order), "test": read["--test"].keys}
    else:
        calibration, scored, remark = _parted(read["--data"], samples, in_order)
        parts = {"calibration": calibration, "test": scored}
        remarks.append(remark)
    places: dict[KeyPath, str] = {("data", part, key): f"--{key}" for part in parts for key in keys}
    return Section(parts, places, tuple(filter(None, remarks)))


def _keys_of(option: str, keys: Mapping[str, Any], wheres: Mapping[str, str]) -> Mapping[str, Any]:
    """What is said of the data of an option: labels only of those that are scored."""
    return {key: value for key, value in keys.items() if key not in LABELS or _is_scored(option, wheres)}


def _is_scored(option: str, wheres: Mapping[str, str]) -> bool:
    """Whether samples of these data are scored: those of --test, where it is given."""
    return option == SCORING or SCORING not in wheres


def _wheres(data: str | None, test: str | None) -> dict[str, str]:
    return {option: where for option, where in (("--data", data), ("--test", test)) if where is not None}


def check_places(data: str | None, test: str | None, keys: Mapping[str, Any]) -> None:
    """What is seen before the network is read: ConfigError for data that are not there, and for an option that none of
    them heed."""
    wheres = _wheres(data, test)
    kinds = {option: kind_of(where, option) for option, where in wheres.items()}
    for key in keys:
        heeding = {option: kind for option, kind in kinds.items() if key in _keys_of(option, keys, wheres)}
        if not any(takes(kind, key) for kind in heeding.values()):
            wanted = " or ".join(KINDS[kind] for kind in KINDS if takes(kind, key))
            found = ", ".join(f"{option} {wheres[option]} is {KINDS[kind]}" for option, kind in heeding.items())
            found = found or "no data are given"
            raise ConfigError(f"--{key} is for {wanted}; {found}")


def _calibrating(source: DataSource, samples: int | None, in_order: bool) -> dict[str, Any]:
    """The samples that calibrate where others are scored."""
    wanted = samples or CALIBRATED
    if samples is not None and samples > source.size and not source.has_parts:
        raise ConfigError(f"--samples {samples}: {source.where} holds {source.size} samples")
    if source.has_parts:
        return source.unlabelled | ({} if samples is None else {"samples": samples})
    return source.unlabelled | (_order(source, in_order) | {"slice": [0, wanted]} if source.size > wanted else {})


def _parted(source: DataSource, samples: int | None, in_order: bool) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The samples that calibrate, those that are scored, and the rule in words."""
    if source.has_parts:
        calibration = source.unlabelled | ({} if samples is None else {"samples": samples})
        return calibration, source.keys, "the function is asked for split='calibration' and for split='test'"
    size = source.size
    if size < LEAST and samples is None:
        remark = f"of {size} samples none are held out: the same calibrate and are scored (--test names others)"
        return source.unlabelled, source.keys, remark
    count = min(size // 2, CALIBRATED) if samples is None else samples
    if count >= size:
        raise ConfigError(
            f"--samples {samples}: {source.where} holds {size} samples, of which some are scored; take fewer, or name "
            f"what is scored by --test"
        )
    order, stop = _order(source, in_order), min(size, count + SCORED)
    how = f"drawn by seed {SEED}" if order else "in their order"
    remark = f"of {size} samples{' that were looked at' if source.has_more else ''}, {how}, {count} calibrate and "
    remark += f"{stop - count} others are scored (--samples, --test)"
    return source.unlabelled | order | {"slice": [0, count]}, source.keys | order | {"slice": [count, stop]}, remark


def _order(source: DataSource, in_order: bool) -> dict[str, Any]:
    """Samples are shuffled, since folders are sorted by class, but not what a state runs along or a function gives."""
    return {} if in_order or source.kind == "loader" else {"shuffle": SEED}
