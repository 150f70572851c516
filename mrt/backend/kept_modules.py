"""Whole modules that were compiled before, in the cache of kernels: of the same model nothing is lowered again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, pairwise

from mrt.backend.job import Job
from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.kernel_objects import machine_facts, made_by_this
from mrt.backend.link.plain_text import is_own
from mrt.symbol import Graph
from mrt.symbol.files import graph_to_bytes

MOST_OF_CACHE = 0.25
"""The share of the cache's bytes that one module may take: it holds all weights, as kernels do not."""


@dataclass(frozen=True, eq=False)
class ModuleCode:
    """What is compiled of a model. stretches: see `Provenance`. objects: the files to be linked, by content."""

    stretches: tuple[tuple[int, int], ...]
    objects: Sequence[bytes]


@dataclass(frozen=True)
class KeptModule:
    """The place in `cache` of the module of one job."""

    cache: KernelCache
    key: str

    @classmethod
    def of(cls, job: Job, cache: KernelCache) -> KeptModule | None:
        """The place by all that the code depends on: both graphs with their values, the facts, and the machine.

        None where an operator is another package's, whose kernel may change while its version stays.
        """
        graphs = [job.graph] if job.postprocess is None else [job.graph, job.postprocess]
        if not all(is_own(symbol.operator) for graph in graphs for symbol in graph.symbols if symbol.operator):
            return None
        facts = job.metadata.to_json(), machine_facts(job.machine), job.near
        return cls(cache, made_by_this("module", repr(facts), *map(_content, graphs)))

    def get(self) -> ModuleCode | None:
        """What was put here, None where there is nothing."""
        held = self.cache.get(self.key)
        if held is None:
            return None
        end = held.index(b"\n")
        facts = json.loads(held[:end])
        stretches = tuple((samples, functions) for samples, functions in facts["stretches"])
        places = pairwise(accumulate(facts["sizes"], initial=end + 1))
        return ModuleCode(stretches, [held[first:behind] for first, behind in places])

    def put(self, code: ModuleCode) -> None:
        """Keeps the code, unless it is too large for the cache."""
        sizes = [len(each) for each in code.objects]
        facts = {"stretches": code.stretches, "sizes": sizes}
        if sum(sizes) <= MOST_OF_CACHE * self.cache.most_bytes:
            self.cache.put(self.key, f"{json.dumps(facts)}\n".encode(), *code.objects)


def _content(graph: Graph) -> str:
    """The digest of a graph and its values."""
    symbols, parameters = graph_to_bytes(graph)
    return f"{sha256(symbols).hexdigest()} {sha256(parameters).hexdigest()}"
