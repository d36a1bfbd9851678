"""Environment variables: what they must not say is an error that names the choice."""

from __future__ import annotations

import pytest

from picograd import ArgumentError
from picograd.config import STAGES, is_on, num_threads, shown_stages


@pytest.mark.parametrize("text", ["abc", "0", "-1", "2.5"])
def test_threads_must_be_a_positive_number(text, monkeypatch):
    monkeypatch.setenv("PICOGRAD_THREADS", text)
    with pytest.raises(ArgumentError, match=f"PICOGRAD_THREADS={text}: must be a positive number"):
        num_threads()


def test_a_stage_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("PICOGRAD_SHOW", "program, kernels")
    with pytest.raises(ArgumentError, match="PICOGRAD_SHOW=kernels: there is no such stage; the stages are schedule, "):
        shown_stages()


@pytest.mark.parametrize("text", ["true", "*", "", "-3"])
def test_a_debug_of_other_programs_shows_nothing(text, monkeypatch):
    monkeypatch.setenv("DEBUG", text)
    assert shown_stages() == frozenset()
    monkeypatch.setenv("DEBUG", "9")
    assert shown_stages() == frozenset(STAGES)


@pytest.mark.parametrize("name", ["PICOGRAD_VERIFY", "PICOGRAD_TUNE"])
def test_switches_are_0_or_1(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert is_on(name)
    monkeypatch.setenv(name, "yes")
    with pytest.raises(ArgumentError, match=f"{name}=yes: must be 0 or 1"):
        is_on(name)
