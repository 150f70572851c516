"""Overrides by the names of a user's model: PyTorch's modules, nodes and tensors of a file, its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from mrt.errors import ConfigError
from mrt.quantization.options import (
    ActivationOverride,
    Override,
    QuantizationConfig,
    WeightOverride,
    matches,
    no_override,
)
from mrt.symbol import Graph


def with_given_names(config: QuantizationConfig, read: Graph, prepared: Graph) -> QuantizationConfig:
    """The options with overrides by the names of the prepared graph.

    read: the graph as it was read, whose names, and those that the model has for its parts, may be used too.

    1. A name or pattern that matches symbols of the prepared graph means these.
    2. A name of the model means what preparation has made of the part: weight options go to all of it, those of
       activations to the tensors that it gives. So does a pattern that matches nothing of the prepared graph.
    3. What was folded into its only reader, such as a convolution into a batch normalisation, is a part of that.

    Raises ConfigError for an override that matches nothing, with the nearest names.
    """
    if not config.overrides:
        return config
    names = _Names(read, prepared)
    found = {pattern: names.meant(pattern) for pattern in config.overrides}
    direct = {pattern: names.direct(pattern) for pattern in config.overrides}
    if all(weights == tensors == direct[pattern] for pattern, (weights, tensors) in found.items()):
        return config
    overrides: dict[str, Override] = {}
    for pattern, override in config.overrides.items():
        weights, tensors = found[pattern]
        for name in (name for name in names.order if name in weights or name in tensors):
            part = Override(
                activation=override.activation if name in tensors else ActivationOverride(),
                weight=override.weight if name in weights else WeightOverride(),
            )
            overrides[name] = part.over(overrides.get(name))
    return config.model_copy(update={"overrides": overrides})


class _Names:
    """What the names of a model mean in its prepared graph."""

    def __init__(self, read: Graph, prepared: Graph) -> None:
        self._read = read
        self.order = [symbol.name for symbol in prepared.symbols]

    @cached_property
    def _made(self) -> Mapping[str, list[str]]:
        """By symbols as read those that preparation has made of them, in order: their names begin with its name."""
        found: dict[str, list[str]] = {}
        for name in self.order:
            source = name
            while source and source not in self._read.by_name:
                source = source.rpartition("_")[0]
            if source:
                found.setdefault(source, []).append(name)
        return found

    def direct(self, pattern: str) -> frozenset[str]:
        """The symbols of the prepared graph that a pattern matches."""
        return frozenset(name for name in self.order if matches(pattern, name))

    def meant(self, pattern: str) -> tuple[frozenset[str], frozenset[str]]:
        """The symbols whose weights an override is for, and those whose tensors."""
        direct = self.direct(pattern)
        module = self._read.other_names.get(pattern, ())
        if pattern in self._read.by_name and module and pattern not in module:
            raise ConfigError(
                f"quantize.overrides.{pattern} is a symbol, and a part of the model of which the symbols are "
                f"{', '.join(module)}; name these, or write [{pattern[0]}]{pattern[1:]} for the symbol"
            )
        parts = self._parts(pattern, exact=bool(direct))
        made = [self._of(part) for part in parts]
        if not direct and not any(made):
            raise no_override(pattern, [*self.order, *self._read.other_names, *self._read.by_name])
        weights = direct.union(*made)
        if direct:
            return weights, direct
        return weights, frozenset(
            part if part in names else names[-1] for part, names in zip(parts, made, strict=True) if names
        )

    def _parts(self, pattern: str, exact: bool) -> list[str]:
        """The symbols as read that a name means, or a pattern unless it is to be exact."""
        given: dict[str, Iterable[str]] = {name: (name,) for name in self._read.by_name}
        known = given | {name: symbols for name, symbols in self._read.other_names.items() if name not in given}
        chosen = [pattern] if pattern in known else [] if exact else [name for name in known if matches(pattern, name)]
        return list(dict.fromkeys(symbol for name in chosen for symbol in known[name]))

    def _of(self, part: str) -> list[str]:
        """What preparation has made of one symbol as read, or of those that it was folded into."""
        found: dict[str, None] = {}
        pending, seen = [part], {part}
        while pending:
            name = pending.pop()
            if name in self._made:
                found.update(dict.fromkeys(self._made[name]))
                continue
            symbol = self._read.by_name.get(name)
            readers = () if symbol is None else self._read.consumers[symbol]
            if symbol is not None and (symbol.is_variable or len(set(readers)) == 1):
                pending += [reader.name for reader in readers if reader.name not in seen]
                seen.update(reader.name for reader in readers)
        return [name for name in self.order if name in found]
