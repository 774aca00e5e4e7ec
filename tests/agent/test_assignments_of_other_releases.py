"""What the agent makes of a list of assignments that it cannot read, because API and agent are of two releases."""

from __future__ import annotations

import pytest

from edt_agent.api import _desired
from edt_agent.decide import Key
from edt_agent.errors import ApiUnreachable


def test_an_attempt_whose_assignment_cannot_be_read_is_known_by_name_and_left_as_it_is() -> None:
    assigned = _desired([{"spec": {"job": "edt-7", "fence": 2, "protocol": 99}, "desired-state": {}}])
    assert (dict(assigned.assignments), assigned.unreadable) == ({}, frozenset({Key("edt-7", 2)}))


def test_a_list_that_does_not_say_which_attempts_it_is_of_changes_nothing() -> None:
    with pytest.raises(ApiUnreachable, match="of another release"):
        _desired([{"letter": {"job": "edt-7", "fence": 2}, "wish": {}}])
