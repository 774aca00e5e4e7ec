"""A regroup that fails: whoever cannot be reached is left out, once everybody's view is known."""

from __future__ import annotations

from edt_runner.coordinator.regroup import Regroup


def round_of(*, regrouped: str = "", **unreachable: str) -> Regroup:
    names = {"one": "1", "two": "2", "three": "3"}
    views = {names[name]: tuple(others) for name, others in unreachable.items()}
    return Regroup(1, dict.fromkeys("123"), regrouped=set(regrouped), unreachable=views)


def test_a_plain_failure_is_tried_again_at_once() -> None:
    assert round_of(two="").failed
    assert not round_of().failed


def test_whoever_names_others_makes_us_wait_for_the_view_of_all() -> None:
    assert not round_of(two="3").failed
    assert not round_of(two="3", three="2").failed
    assert round_of(two="3", three="2", regrouped="1").failed


def test_whoever_had_built_the_group_and_lost_it_by_that_makes_us_wait_too() -> None:
    """Engine 1 reaches both; 2 and 3 give up, and are about to say why."""
    assert not round_of(one="", regrouped="1").failed
    assert not round_of(one="", two="3", regrouped="1").failed
    assert round_of(one="", two="3", three="2", regrouped="1").failed


def test_the_latest_of_those_that_most_cannot_reach_goes() -> None:
    assert round_of(two="3", three="2", regrouped="1").least_reachable() == "3"
    assert round_of(one="2", three="2", two="13").least_reachable() == "2"
    assert round_of(one="", two="", three="").least_reachable() is None
