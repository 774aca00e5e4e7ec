"""What holds whatever supervisors run in, once more: in pods of a real Kubernetes and in steps of a real Slurm.

The tests are those that hold processes and containers (tests/agent/test_launcher_contract.py); what an agent's death
means for such nodes is in tests/agent/test_temporary.py and in the journeys.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.agent import test_launcher_contract as contract
from tests.agent.conftest import Node

from support.fake_api import FakeApi
from support.places import Place
from support.pool_places import pod, step
from support.slurm_cluster import SlurmOnThisMachine

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.docker]),
        pytest.param("slurm", marks=pytest.mark.slurm),
    ],
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A node that a cluster manager has given, for many tests: each has a job of its own."""
    folder = tmp_path_factory.mktemp("place")
    with FakeApi() as api:
        node = Node(folder / "home", api, f"{request.param}-1")
        if request.param == "kubernetes":
            with pod(node, request.getfixturevalue("kubernetes"), folder) as place:
                place.start()
                yield place
        else:
            with SlurmOnThisMachine() as slurm, step(node, slurm, folder) as place:
                place.start()
                yield place


def _here(test: Callable[..., None], *marks: pytest.MarkDecorator) -> Callable[..., None]:
    """The same test, for the places of this file."""
    copied: Any = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__)
    copied.__annotations__, copied.__doc__ = test.__annotations__, test.__doc__
    copied.pytestmark = [mark.mark for mark in marks]
    found: Callable[..., None] = copied
    return found


test_a_script_runs_to_its_end_and_leaves_only_its_files = _here(
    contract.test_a_script_runs_to_its_end_and_leaves_only_its_files
)
test_the_status_a_script_exits_with_is_reported = _here(
    contract.test_the_status_a_script_exits_with_is_reported, pytest.mark.extended
)
test_engines_join_and_leave_as_processes_beside_each_other = _here(
    contract.test_engines_join_and_leave_as_processes_beside_each_other
)
test_a_script_that_ignores_signals_is_killed_when_its_grace_is_over = _here(
    contract.test_a_script_that_ignores_signals_is_killed_when_its_grace_is_over, pytest.mark.extended
)
test_what_a_script_leaves_behind_goes_with_it = _here(contract.test_what_a_script_leaves_behind_goes_with_it)
test_a_supervisor_that_is_killed_is_a_loss_and_takes_everything_with_it = _here(
    contract.test_a_supervisor_that_is_killed_is_a_loss_and_takes_everything_with_it
)
test_sigterm_to_a_supervisor_means_leave_with_a_checkpoint = _here(
    contract.test_sigterm_to_a_supervisor_means_leave_with_a_checkpoint, pytest.mark.extended
)
test_no_secret_of_a_spec_or_of_the_agent_can_be_seen_from_outside = _here(
    contract.test_no_secret_of_a_spec_or_of_the_agent_can_be_seen_from_outside
)
