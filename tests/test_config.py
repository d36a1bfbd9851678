"""Environment variables: what they must not say is an error that names the choice."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from picograd import ArgumentError, DeviceError, Tensor, __version__, config
from picograd.config import STAGES, is_on, num_threads, shown_stages
from picograd.devices.cpu.pool import Crew
from picograd.engine.compiler import ahead, pipelined
from picograd.look import LOOKS
from picograd.tensor import costs
from picograd_lab.doctor import examine_cache

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
MARKED = re.compile("(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)


def table_of_settings() -> str:
    """Returns the table of docs/settings.md; `python -m tests.test_config` writes it there."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, (default, text) in config.VARIABLES.items():
        rows.append(f"| `{name}` | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join([*rows, ""])


def test_the_page_has_every_setting() -> None:
    found = MARKED.search(PAGE.read_text())
    assert found is not None and found[0] == table_of_settings()


@pytest.mark.parametrize("text", ["abc", "0", "-1", "2.5", "²", "٣", "3000", "9" * 20, "9" * 5000])
def test_threads_must_be_a_positive_number(text, monkeypatch):
    monkeypatch.setenv("PICOGRAD_THREADS", text)
    with pytest.raises(ArgumentError, match=f"PICOGRAD_THREADS={text[:20]}: must be a positive number up to 1024"):
        num_threads()


def test_an_empty_variable_counts_as_not_set(monkeypatch):
    for name, (default, _) in config.VARIABLES.items():
        monkeypatch.setenv(name, "")
        assert config.setting(name) == default
    assert Tensor([1.0]).device == "CPU" and not is_on("PICOGRAD_TUNE")


def test_a_stage_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("PICOGRAD_SHOW", "program, kernels")
    with pytest.raises(ArgumentError, match="PICOGRAD_SHOW=kernels is not a stage; the stages are graph, "):
        shown_stages()


@pytest.mark.parametrize("text", ["true", "*", "", "-3", "²", "9" * 5000])
def test_a_debug_of_other_programs_shows_nothing(text, monkeypatch):
    monkeypatch.setenv("DEBUG", text)
    assert shown_stages() == frozenset()
    monkeypatch.setenv("DEBUG", "9")
    assert shown_stages() == frozenset(STAGES)


def test_the_stages_are_one_list():
    """Each can be looked at, and pg.explain has all but the last, which runs."""
    assert {*STAGES} <= LOOKS.keys() and STAGES[:-1] == costs.STAGES


@pytest.mark.parametrize("name", ["PICOGRAD_VERIFY", "PICOGRAD_TUNE", "PICOGRAD_PLAIN_SUMS"])
def test_switches_are_0_or_1(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert is_on(name)
    monkeypatch.setenv(name, "yes")
    with pytest.raises(ArgumentError, match=f"{name}=yes: must be 0 or 1"):
        is_on(name)


def test_a_folder_may_begin_with_the_home_of_the_user(monkeypatch):
    for name in config.FOLDERS:
        monkeypatch.setenv(name, "~/x")
        assert config.setting(name) == os.path.expanduser("~/x")
    assert str(config.cache_folder()) == os.path.expanduser("~/x")
    for off in ("OFF", "off", "0"):
        monkeypatch.setenv("PICOGRAD_CACHE", off)
        assert config.cache_folder() is None


def test_a_name_that_is_no_variable_gives_a_warning(monkeypatch, recwarn):
    config.warn_of_settings()
    assert not recwarn.list
    monkeypatch.setenv("PICOGRAD_CASHE", "off")
    with pytest.warns(UserWarning, match=r"PICOGRAD_CASHE: picograd reads no variable of this name, only P"):
        config.warn_of_settings()


BAD = {
    "PICOGRAD_SHOW": "PICOGRAD_SHOW=foo is not a stage", "PICOGRAD_THREADS": "PICOGRAD_THREADS=foo: must be a pos",
    "PICOGRAD_CPU": "PICOGRAD_CPU=foo: this is not a processor", "PICOGRAD_DEVICE": "FOO: this is not a device",
    "PICOGRAD_FOO": "PICOGRAD_FOO: picograd reads no variable of this", "PICOGRAD_TUNE": "PICOGRAD_TUNE=foo: must be 0",
    "PICOGRAD_VERIFY": "PICOGRAD_VERIFY=foo: must be 0 or 1", "PICOGRAD_QUIET": "PICOGRAD_QUIET=foo: must be 0 or 1",
    "PICOGRAD_PLAIN_SUMS": "PICOGRAD_PLAIN_SUMS=foo: must be 0 or 1",
}  # fmt: skip


def test_every_bad_setting_is_told_when_picograd_is_imported():
    """A default, a folder and DEBUG, which other programs read, cannot be told from a mistake."""
    assert {*BAD} >= {name for name in config.VARIABLES if name not in (*config.FOLDERS, "DEBUG")}
    made = subprocess.run(
        [sys.executable, "-c", "import picograd; print(picograd.__version__)"],
        env={**os.environ, **dict.fromkeys(BAD, "foo")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.stdout == f"{__version__}\n"
    assert [said for said in BAD.values() if f"UserWarning: {said}" not in made.stderr] == []


def test_threads_that_are_not_granted(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(DeviceError, match="CPU: 1 of 3 threads run, the system refuses another one: can't start"):
        Crew(None).grow(2)
    assert ahead(lambda: 3)() == 3
    assert [*pipelined([1, 2, 3], lambda item: lambda: item * 2, 2)] == [2, 4, 6]


# ---- how many threads ----
def test_threads_are_those_of_the_processors_this_process_may_use(monkeypatch):
    monkeypatch.delenv("PICOGRAD_THREADS", raising=False)
    monkeypatch.setattr(config, "_quota", lambda: math.inf)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert num_threads() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert num_threads() == len(before)


@pytest.mark.parametrize(("granted", "threads"), [(0.25, 1), (1.0, 1), (1.5, 2), (3.0, 3), (64.0, 8), (math.inf, 8)])
def test_threads_are_no_more_than_the_quota_grants(granted, threads, monkeypatch):
    monkeypatch.delenv("PICOGRAD_THREADS", raising=False)
    monkeypatch.setattr(config, "_processors", lambda: 8)
    monkeypatch.setattr(config, "_quota", lambda: granted)
    assert num_threads() == threads
    monkeypatch.setenv("PICOGRAD_THREADS", "5")
    assert num_threads() == 5


QUOTAS = {
    "version 2": ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
    "a wider group within a narrower one": (
        "0::/a/b\n",
        {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"},
        0.5,
    ),
    "the root": ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
    "no limit": ("0::/a\n", {"a/cpu.max": "max 100000\n"}, math.inf),
    "version 1": (
        "4:memory:/m\n3:cpu,cpuacct:/a\n",
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "50000\n"},
        2.0,
    ),
    "version 1, no limit": (
        "3:cpu,cpuacct:/a\n",
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/a/cpu.cfs_period_us": "50000\n"},
        math.inf,
    ),
    "no control groups": ("", {}, math.inf),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas_of_control_groups_are_read(name, tmp_path):
    own, files, granted = QUOTAS[name]
    (tmp_path / "cgroup").write_text(own)
    for path, text in files.items():
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_text(text)
    assert config._quota(tmp_path / "cgroup", tmp_path / "root") == granted


@pytest.mark.parametrize("text", ["off", "0"])
def test_the_cache_is_turned_off_by_a_word_or_by_0(text, monkeypatch):
    monkeypatch.setenv("PICOGRAD_CACHE", text)
    assert config.cache_folder() is None
    assert f"turned off (PICOGRAD_CACHE={text})" in examine_cache().text


if __name__ == "__main__":
    PAGE.write_text(MARKED.sub(lambda _: table_of_settings(), PAGE.read_text()))
