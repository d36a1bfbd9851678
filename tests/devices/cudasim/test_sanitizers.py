"""The simulator and the primitives under sanitizers: kernels of every kind run clean, and what is seeded is found."""

from __future__ import annotations

import pytest

from tests.host_compilers import HAS_COMPILER
from tests.sanitized import libraries, run

pytestmark = pytest.mark.skipif(
    not (HAS_COMPILER and libraries()),
    reason="no C++ compiler is on PATH, or it has no libasan.so and libubsan.so",
)
KERNELS = {
    "bugs": ("tests/devices/cudasim/test_bugs.py", "no_false_alarm"),
    "expressions": ("tests/engine/test_cuda_devices.py", "(expression or host) and CUDASIM"),
    "primitives": ("tests/devices/cuda/test_primitives.py", "simulator"),
    "a product by warpgroups": ("tests/devices/cuda/test_hopper_product.py", "exact"),
}


@pytest.fixture(autouse=True)
def whole_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process inside runs all tests that are asked for, whichever part of them runs here."""
    monkeypatch.delenv("TEST_PART", raising=False)


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("chosen", KERNELS.values(), ids=KERNELS.keys())
def test_kernels_run_clean(chosen: tuple[str, str]) -> None:
    file, expression = chosen
    done = run(file, "-k", expression)
    assert done.returncode == 0 and " 0 tests" not in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(
    ("bug", "says"),
    [
        ("address", "AddressSanitizer: heap-buffer-overflow"),
        ("shift", "runtime error: shift exponent"),
        ("stack", "runtime error: index|AddressSanitizer: stack-buffer-overflow"),
    ],
)
def test_what_is_seeded_is_found(bug: str, says: str) -> None:
    done = run("tests/devices/cudasim/seeded_for_sanitizers.py", "-k", bug)
    assert done.returncode != 0
    assert any(each in done.stderr for each in says.split("|")), done.stdout[-2000:] + done.stderr[-2000:]
