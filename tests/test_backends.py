"""torch.backends and torch.accelerator by their names: what programs for PyTorch set and ask before they train."""

from __future__ import annotations

import pytest

import picograd as pg


def test_settings_that_programs_make_are_taken() -> None:
    pg.backends.cudnn.benchmark = pg.backends.cudnn.deterministic = True
    pg.backends.cudnn.enabled = False
    assert pg.backends.cudnn.benchmark and not pg.backends.cudnn.enabled and pg.backends.cudnn.version() is None
    pg.backends.cuda.enable_flash_sdp(True)
    pg.backends.cuda.enable_math_sdp(False)
    assert pg.backends.cuda.is_built() and pg.backends.cuda.is_available() == pg.cuda.is_available()
    for library in (pg.backends.mps, pg.backends.mkl, pg.backends.mkldnn, pg.backends.openmp, pg.backends.opt_einsum):
        assert not library.is_available() and not library.is_built()
    assert pg.backends.cpu.get_cpu_capability() in ("native", "avx512", "avx2", "sse")


def test_tf32_is_one_setting_under_two_names() -> None:
    before = pg.get_float32_matmul_precision()
    try:
        pg.backends.cuda.matmul.allow_tf32 = True
        assert pg.get_float32_matmul_precision() == "high" and pg.backends.cuda.matmul.allow_tf32
        pg.set_float32_matmul_precision("highest")
        assert not pg.backends.cuda.matmul.allow_tf32
    finally:
        pg.set_float32_matmul_precision(before)


def test_what_is_not_there_has_no_name() -> None:
    with pytest.raises(AttributeError, match="'cudn'"):
        _ = pg.backends.cudn


def test_the_accelerator_is_the_gpu_where_there_is_one() -> None:
    there = pg.cuda.is_available()
    assert pg.accelerator.is_available() == there and pg.accelerator.device_count() == int(there)
    assert pg.accelerator.current_accelerator() == (pg.device("cuda") if there else None)
    with pytest.raises(AttributeError, match="hint: kernels run in order"):
        _ = pg.accelerator.current_stream
    if not there:
        with pytest.raises(pg.DeviceError):
            pg.accelerator.set_device_index(0)
