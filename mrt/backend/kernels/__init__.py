"""Kernels: which instructions add up products, and the loops around them; what needs a family of CPUs in its folder.

KERNEL_PASSES lower what schedules leave marks for, in this order.
"""

from typing import Any

from mrt.backend.kernels.generic.fewer_rows import FewerRows
from mrt.backend.kernels.generic.overlap_pairs import OverlapPairs
from mrt.backend.kernels.generic.prefetch import Prefetch
from mrt.backend.kernels.generic.rows import CombineHalves
from mrt.backend.kernels.generic.turned_tiles import TurnedTiles
from mrt.backend.kernels.generic.two_steps import TwoSteps
from mrt.backend.kernels.generic.unroll_and_jam import UnrollAndJam
from mrt.backend.kernels.generic.winograd_transforms import WinogradTransforms
from mrt.backend.kernels.x86.amx.instructions import AmxTiles
from mrt.backend.kernels.x86.avx2.joined_lookups import JoinLookUps
from mrt.backend.kernels.x86.avx512.packed_store import PackedStore
from mrt.backend.kernels.x86.depthwise_groups import ColumnGroups
from mrt.backend.kernels.x86.depthwise_strip import DepthwiseDots
from mrt.symbol.passes import BasePass

KERNEL_PASSES: tuple[BasePass[Any], ...] = (
    Prefetch(),
    UnrollAndJam(),
    TwoSteps(),
    OverlapPairs(),
    JoinLookUps(),
    TurnedTiles(),
    WinogradTransforms(),
    ColumnGroups(),
    DepthwiseDots(),
    PackedStore(),
    CombineHalves(),
    FewerRows(),
    AmxTiles(),
)
