"""The benchmark's own judgement: what it accepts, what it rejects, what it writes. Times nothing, imports no peer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.driver import without_paths  # noqa: E402
from bench.reference import NUM_LOSSES, losses, make_judge, sampled_places  # noqa: E402
from bench.report import step_grids, update_docs, write_json  # noqa: E402
from bench.rounds import Measured  # noqa: E402
from bench.workloads import WORKLOADS, Forward, Training, operands, select  # noqa: E402


@pytest.mark.parametrize("name", ["mlp_2_16", "mlp_300", "names"])
def test_losses_rounded_to_float32_are_right_and_one_off_by_a_thousandth_is_not(name: str) -> None:
    workload = WORKLOADS[name]
    assert isinstance(workload, Training)
    expected = losses(workload)
    judge = make_judge(workload)
    assert judge([float(np.float32(loss)) for loss in expected]).is_right
    assert not judge([*expected[:-1], expected[-1] * 1.001]).is_right
    assert not judge([float("nan")] * NUM_LOSSES).is_right


def test_losses_fall_when_the_same_batch_is_repeated() -> None:
    workload = Training("repeated", "mlp", (4, 8, 3), "tanh", "cross_entropy", 16, 0.1, num_batches=1)
    found = losses(workload)
    assert all(later < earlier for earlier, later in zip(found, found[1:]))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_float32_matmul_is_right_and_a_bfloat16_like_one_is_not(layout: str) -> None:
    workload = WORKLOADS[f"matmul_256_{layout}"]
    assert isinstance(workload, Forward)
    lhs, rhs = operands(workload, 0)
    coarse = [(stored.view(np.uint32) & 0xFFFF0000).view(np.float32) for stored in (lhs, rhs)]
    judge, places = make_judge(workload), sampled_places(workload)
    assert judge(_product(layout, lhs, rhs)[places].tolist()).is_right
    assert not judge(_product(layout, *coarse)[places].tolist()).is_right


def _product(layout: str, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return (lhs.T if layout[0] == "T" else lhs) @ (rhs.T if layout[1] == "T" else rhs)


def test_unknown_selection_names_the_groups() -> None:
    with pytest.raises(ValueError, match="--only: 'lstm' is no workload or group; groups: elementwise, layer_norm"):
        select(["lstm"])


def test_messages_keep_no_absolute_path() -> None:
    assert without_paths("ImportError: /opt/x/lib/libfoo.so: bad") == "ImportError: libfoo.so: bad"
    assert without_paths("--json bench/results/a.json --to=/opt/x/b.json") == "--json bench/results/a.json --to=b.json"


def test_tables_replace_only_what_stands_between_their_markers(tmp_path: Path) -> None:
    steps = [Measured("names", "torch", [2e-4, 1e-4, 3e-4], 100, 0.1, 0.5, "tight")]
    assert step_grids(steps)["training"].rows[0][:2] == ["names", "200 us 1.00x (100 us..300 us)"]
    result, page = tmp_path / "r.json", tmp_path / "page.md"
    machine = {"processor": "p", "cores": 2, "memory_nbytes": 2**30, "system": "s", "python": "3", "load_average": 0.0}
    head = {"command": "c", "commit": "0" * 40, "is_modified": False, "date": "d", "wall_s": 1.0, "machine": machine}
    settings = {"num_threads": 2, "rounds": 7}
    rows = [vars(measured) for measured in steps]
    write_json({**head, "versions": {}, "settings": settings, "steps": rows, "startup": []}, result)
    page.write_text("before\n<!-- bench:training -->\nold\n<!-- /bench:training -->\nafter\n")
    assert update_docs(result, page) == ["training"]
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text and "200 us" in text
