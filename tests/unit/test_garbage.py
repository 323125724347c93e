"""How often the interpreter looks for cycles."""

from __future__ import annotations

import gc

import pytest

from laneway._garbage import collecting_rarely


@pytest.fixture(autouse=True)
def _threshold():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("before", [(700, 10, 10), (2_000, 5, 0)])
def test_it_is_rare_for_a_while(before):
    """And afterwards as the user has it."""
    gc.set_threshold(*before)
    with collecting_rarely():
        assert gc.get_threshold()[0] > 10_000
    assert gc.get_threshold() == before


@pytest.mark.parametrize("before", [(0, 10, 10), (200_000, 10, 10)])
def test_one_who_collects_less_often_is_left_alone(before):
    """0 is never."""
    gc.set_threshold(*before)
    with collecting_rarely():
        assert gc.get_threshold() == before
    assert gc.get_threshold() == before


def test_a_change_meanwhile_is_meant():
    """Another part of the program set it while the engine ran."""
    gc.set_threshold(700, 10, 10)
    with collecting_rarely():
        gc.set_threshold(1_234, 5, 5)
    assert gc.get_threshold() == (1_234, 5, 5)
