"""What stands in for an instruction does what the CPU does, for those that this machine has: all, or those of AVX2."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stand_ins import instructions

from mrt.cpu_flags import is_flagged, own_flags

HALVES = {
    "avx512_pmaddw_d_512": "madd_epi16",
    "avx512_pmaddubs_w_512": "maddubs_epi16",
    "avx512_pmulh_w_512": "mulhi_epi16",
    "avx512_pmulhu_w_512": "mulhi_epu16",
    "avx512_pmul_hr_sw_512": "mulhrs_epi16",
    "avx512_packsswb_512": "packs_epi16",
    "avx512_packuswb_512": "packus_epi16",
    "avx512_packssdw_512": "packs_epi32",
    "avx512_packusdw_512": "packus_epi32",
    "avx512_pshuf_b_512": "shuffle_epi8",
}
"""Of two vectors, each half of the result of the same halves; by what C calls the one of AVX2, after `_mm256_`."""
WHOLE = {
    "avx512_vpdpbusd_512": ("_mm512_dpbusd_epi32(a, b, c)", "avx512vnni"),
    "avx512_vpdpwssd_512": ("_mm512_dpwssd_epi32(a, b, c)", "avx512vnni"),
    "avx512_permvar_qi_512": ("_mm512_permutexvar_epi8(b, a)", "avx512vbmi"),
    "avx512_vpermi2var_qi_512": ("_mm512_permutex2var_epi8(a, b, c)", "avx512vbmi"),
    "avx512_vpermi2var_hi_512": ("_mm512_permutex2var_epi16(a, b, c)", "avx512bw"),
    "avx512_vpermi2var_d_512": ("_mm512_permutex2var_epi32(a, b, c)", "avx512f"),
}
"""In C, of vectors in the order in which LLVM has them, and the feature that a CPU needs."""
BYTES = 64
ENDS = np.array([0, 1, 127, 128, 255], np.uint8)
"""Of bytes; next to each other they make ends of longer integers, too."""
C = "#include <immintrin.h>\nvoid real(const char *x, const char *y, const char *z, char *out) {{\n{body}\n}}\n"

Function = Callable[..., None]


def compiled(body: str, feature: str, folder: Path) -> Function:
    source, library = folder / "real.c", folder / "real.so"
    source.write_text(C.format(body=body), encoding="ascii")
    subprocess.run(["cc", "-O1", f"-m{feature}", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(str(library)).real


def assert_same(name: str, real: Function, vectors: int) -> None:
    """For vectors of drawn bytes, and of the ends alone."""
    stand_in, random = getattr(instructions(), name), np.random.default_rng(0)
    for turn in range(200):
        drawn = (
            random.integers(0, 256, (vectors, BYTES), np.uint8) if turn % 2 else random.choice(ENDS, (vectors, BYTES))
        )
        found, expected = np.zeros(BYTES, np.uint8), np.zeros(BYTES, np.uint8)
        places = [row.ctypes.data_as(ctypes.c_void_p) for row in drawn]
        stand_in(*places, found.ctypes.data_as(ctypes.c_void_p))
        real(*(places + places[:1])[:3], expected.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_array_equal(found, expected)


def check(*features: str) -> None:
    lacking = [feature for feature in features if not is_flagged(feature, own_flags())]
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")


@pytest.mark.parametrize("name", HALVES)
def test_instructions_that_avx2_has_for_halves(name: str, tmp_path: Path) -> None:
    check("avx2")
    half = "_mm256_storeu_si256((__m256i *)(out + {0}), _mm256_{1}(_mm256_loadu_si256((const __m256i *)(x + {0})), "
    half += "_mm256_loadu_si256((const __m256i *)(y + {0}))));"
    body = "\n".join(half.format(place, HALVES[name]) for place in (0, BYTES // 2))
    assert_same(name, compiled(body, "avx2", tmp_path), 2)


@pytest.mark.parametrize("name", WHOLE)
def test_instructions_of_avx512(name: str, tmp_path: Path) -> None:
    value, feature = WHOLE[name]
    check(feature)
    loads = "\n".join(f"__m512i {to} = _mm512_loadu_si512({at});" for to, at in zip("abc", "xyz", strict=True))
    body = f"{loads}\n_mm512_storeu_si512(out, {value});"
    assert_same(name, compiled(body, feature, tmp_path), 2 if "permvar" in name else 3)
