"""The pass that simplifies the elementwise chains of integer graphs: the same integers by fewer operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mrt.errors import GraphError, QuantizationError
from mrt.simplification.affine_rules import (
    CarryShift,
    FoldProduct,
    MergeProducts,
    MergeSums,
    ScaleBeforeRelu,
    ScaleBeforeSum,
    SkipIdentity,
)
from mrt.simplification.chain import Chain, Step
from mrt.simplification.integer import ChainReader, Planned, plan
from mrt.simplification.limit_rules import (
    ClipBehindAdd,
    ClipBehindRound,
    DropIdleClip,
    DropRelu,
    DropRound,
    MergeClips,
)
from mrt.simplification.rule import Known, Rule
from mrt.symbol import Graph, GraphBuilder, Interval, Pass, PassResult, Refusal, Symbol, TensorType
from mrt.symbol.builder import keep

RULES: tuple[Rule, ...] = (
    SkipIdentity(),
    DropRound(),
    DropIdleClip(),
    MergeClips(),
    MergeProducts(),
    MergeSums(),
    FoldProduct(),
    ScaleBeforeRelu(),
    ScaleBeforeSum(),
    DropRelu(),
    ClipBehindAdd(),
    ClipBehindRound(),
    CarryShift(),
)
"""In the order in which they are tried."""


@dataclass(frozen=True)
class Rewritten:
    """What a rule did for a symbol."""

    symbol: str
    rule: str


@dataclass(frozen=True)
class Simplified(PassResult):
    """What the pass made. rewritten: by which rules, in order. The reason of a refusal begins with the rule's name.

    notes: one for each rule that was applied, and one for each reason why a rule was not.
    """

    rewritten: tuple[Rewritten, ...] = ()


def _notes(rewritten: Sequence[Rewritten], refusals: Sequence[Refusal]) -> tuple[str, ...]:
    done: dict[str, list[str]] = {}
    for each in rewritten:
        done.setdefault(each.rule, []).append(each.symbol)
    left: dict[str, list[str]] = {}
    for refusal in refusals:
        left.setdefault(refusal.reason, []).append(refusal.symbol)
    return (
        *(f"simplified by {rule}: {_named(symbols)}" for rule, symbols in done.items()),
        *(f"not simplified by {reason}: {_named(symbols)}" for reason, symbols in left.items()),
    )


def _named(symbols: Sequence[str]) -> str:
    """The first of the symbols, and how many there are besides."""
    return symbols[0] if len(symbols) == 1 else f"{symbols[0]} and {len(symbols) - 1} more"


@dataclass(frozen=True, eq=False)
class Proof:
    """A chain that fits 32 bits: its operators, the type that they give, and the intervals after so many steps.

    planned: None for a chain as it was read, whose operators are those of the graph. cost: how many operators it takes.
    """

    chain: Chain
    planned: tuple[Planned, ...] | None
    cost: int
    type: TensorType
    intervals: tuple[Interval | None, ...]


@dataclass(frozen=True)
class SimplifyChains(Pass):
    """Rewrites the chains of an integer graph by rules until none shortens them; integers stay what they are.

    A rewriting is taken if it has fewer operators and every tensor is proven to fit 32 bits. bounds: of the graph's
    tensors, by name. A symbol that keeps its name keeps its values.
    """

    bounds: Mapping[str, Interval] = field(compare=False)
    rules: tuple[Rule, ...] = RULES

    def run(self, graph: Graph) -> Simplified:
        reader, builder = ChainReader(graph), GraphBuilder(reserved=graph.by_name)
        new: dict[Symbol, Symbol] = {symbol: builder.adopt_input(symbol) for symbol in graph.inputs}
        rewritten: list[Rewritten] = []
        refusals: list[Refusal] = []
        for symbol in graph.symbols:
            if symbol.is_variable:
                new[symbol] = new.get(symbol) or builder.adopt(symbol, graph.value(symbol))
            elif reader.steps(symbol) is None:
                new[symbol] = keep(symbol, tuple(new[source] for source in symbol.inputs), builder)
            elif reader.ends_chain(symbol):
                chain = reader.chain_to(symbol)
                proof, done, left = self._simplified(self._as_read(chain, reader), symbol in graph.outputs)
                new[symbol] = _emitted(chain, proof, new, reader, builder)
                rewritten += done
                refusals += left
        outputs = [new[symbol] for symbol in graph.outputs]
        notes = _notes(rewritten, refusals)
        return Simplified(builder.graph(outputs), tuple(refusals), notes=notes, rewritten=tuple(rewritten))

    def _simplified(self, proof: Proof, is_output: bool) -> tuple[Proof, list[Rewritten], list[Refusal]]:
        """The chain by as few operators as the rules find, what they did, and what they left alone in the end."""
        done: list[Rewritten] = []
        while True:
            left: dict[tuple[str, str], Refusal] = {}
            better = self._better(proof, is_output, done, left)
            if better is None:
                return proof, done, list(left.values())
            proof = better

    def _better(
        self, proof: Proof, is_output: bool, done: list[Rewritten], left: dict[tuple[str, str], Refusal]
    ) -> Proof | None:
        """The first rewriting that makes the chain shorter; what is noted on the way goes into `done` and `left`."""
        known = Known(proof.chain, proof.intervals)
        for rule, at in ((rule, at) for rule in self.rules for at in range(len(proof.chain.links))):
            made = rule.apply(known, at)
            if made is None or (isinstance(made, Chain) and is_output and not made.links):
                continue
            found = self._prove(made) if isinstance(made, Chain) else made
            symbol = proof.chain.symbol_at(at).name
            if isinstance(found, str):
                left[symbol, rule.name] = Refusal(symbol, f"{rule.name}: {found}")
            elif found.type == proof.type and found.cost < proof.cost:
                done.append(Rewritten(symbol, rule.name))
                return found
        return None

    def _as_read(self, chain: Chain, reader: ChainReader) -> Proof:
        """A chain of the graph, whose bounds are known."""
        symbols = [link.symbol for link in chain.links]
        intervals = [None if symbol is None else self.bounds[symbol.name] for symbol in (chain.source, *symbols)]
        made = [symbol for symbol in symbols if symbol is not None]
        cost = len(made) + sum(reader.absorbed(source) is not None for symbol in made for source in symbol.inputs)
        return Proof(chain, None, cost, chain.end.type, tuple(intervals))

    def _prove(self, chain: Chain) -> Proof | str:
        """The chain with its operators; the reason where there are none, or they are not proven to fit 32 bits."""
        planned = plan(chain)
        if isinstance(planned, str):
            return planned
        type, held = chain.source.type, self.bounds[chain.source.name]
        intervals: list[Interval | None] = [held] + [None] * len(chain.links)
        for each in planned:
            try:
                type, held = each.proven(type, held, self.bounds)
            except (GraphError, QuantizationError) as error:
                return str(error)
            intervals[each.stop] = held
        return Proof(chain, planned, sum(each.cost for each in planned), type, tuple(intervals))


def _emitted(
    chain: Chain, proof: Proof, new: dict[Symbol, Symbol], reader: ChainReader, builder: GraphBuilder
) -> Symbol:
    """The last symbol of a chain in the new graph. A step that the old graph had keeps its operator and constant.

    It keeps its name where it has the values that it had.
    """
    links, value = proof.chain.links, new[chain.source]
    planned: list[tuple[int, Planned | None]]
    if proof.planned is None:
        planned = [(at + 1, None) for at, link in enumerate(links) if link.symbol is not None]
    else:
        planned = [(each.stop, each) for each in proof.planned]
    made = _makers(chain)
    start = 0
    for stop, each in planned:
        symbol, makers = links[stop - 1].symbol, {made.get(link.step) for link in links[start:stop]}
        maker = makers.pop() if len(makers) == 1 else None
        name = f"{(maker or chain.end).name}_simplified" if symbol is None else symbol.name
        origin = (symbol or maker or chain.end).origin
        if maker is not None:
            value = _again(maker, value, name, origin, new, reader, builder)
        elif each is not None:
            value = each.build(value, new, builder, name, origin)
        start = stop
    return value


def _makers(chain: Chain) -> dict[Step, Symbol]:
    """For every step of a chain as it was read, the symbol that it is (part of) the operator of."""
    made: dict[Step, Symbol] = {}
    for at, link in enumerate(chain.links):
        made[link.step] = chain.symbol_at(at)
    return made


def _again(
    symbol: Symbol,
    value: Symbol,
    name: str,
    origin: str,
    new: dict[Symbol, Symbol],
    reader: ChainReader,
    builder: GraphBuilder,
) -> Symbol:
    """The operator of `symbol` on `value` and on what its other inputs have become."""
    found = reader.steps(symbol)
    data = symbol.inputs[0] if found is None else found[0]
    for source in symbol.inputs:
        if source is not data and source not in new:  # a product that counts as part of its sum
            new[source] = keep(source, tuple(new[each] for each in source.inputs), builder)
    inputs = tuple(value if source is data else new[source] for source in symbol.inputs)
    return (
        keep(symbol, inputs, builder) if name == symbol.name else builder.apply(symbol.operator, inputs, name, origin)
    )
