"""Engines that cannot reach each other, without a reset, while all reach the coordinator: the training goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient
from support import crashes
from support.baselines import Baselines
from support.crashes import CONV, assert_unharmed, gone
from support.nursery import Nursery
from support.partition import Networks
from support.training import Elastic, spec_for

pytestmark = pytest.mark.network_namespaces

LONG = (*CONV[:-1], 8)
"""Epochs enough to be in the middle when the network is cut."""


@pytest.fixture
def digest(baselines: Baselines) -> str:
    return baselines.digest(*LONG)


@contextmanager
def nodes(
    nursery: Nursery, folder: Path, networks: Networks, names: str, hang_seconds: float
) -> Iterator[tuple[Elastic, dict[str, SupervisorClient]]]:
    """Engine 1 on the first node, which is the home, 2 on the second …; all train. A tick is noticed as hung after
    ``hang_seconds``."""

    def spec(node: str) -> Any:
        environ = {**networks.environ(node), "EDT_HANG_SECONDS": str(hang_seconds)}
        more = {"host": networks.address(node), "node": node}
        if node != names[0]:
            more["spool_dir"] = str(folder / node)
        return spec_for(folder / "job", *LONG, environ=environ, **more)

    with ExitStack() as stack:
        training = stack.enter_context(Elastic(spec(names[0]), nursery.start))
        training.settle([1])
        address = training.kinds(ReportKind.COORDINATOR_AT)[0]["address"]
        supervisors = {}
        for number, node in enumerate(names[1:], 2):
            supervisors[node] = stack.enter_context(SupervisorClient(spec(node), nursery.start))
            supervisors[node].hold([number], coordinator=address)
        training.await_ready(range(1, len(names) + 1))
        training.gate.until(lambda: training.training() == set(range(1, len(names) + 1)), sparing=True)
        yield training, supervisors


def steps_go_on(training: Elastic) -> None:
    """Until three more steps are committed."""
    target = training.gate.allowed + 3
    training.gate.until(lambda: training.gate.reached() >= target, 100)


def test_two_of_three_cannot_reach_each_other_and_one_of_them_goes(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    with Networks("abc") as networks, nodes(nursery, tmp_path, networks, "abc", 2) as (training, supervisors):
        networks.cut("b", "c")
        steps_go_on(training)
        end = training.finish()
        lost = {number for supervisor in supervisors.values() for number in _gone(supervisor)}
        sizes = {loss.workers for loss in crashes.losses(training)}
    assert_unharmed(training, end, digest, epochs=8)
    assert sizes == {2}
    assert len(lost) == 1


def test_a_network_that_heals_costs_no_engine(nursery: Nursery, tmp_path: Path, digest: str) -> None:
    """In much less time than the minute after which anybody is suspected."""
    with Networks("abc") as networks, nodes(nursery, tmp_path, networks, "abc", 60) as (training, _):
        networks.cut("b", "c")
        training.gate.allow(training.gate.allowed + 2)
        time.sleep(0.5)
        networks.heal()
        steps_go_on(training)
        assert not gone(training)
        end = training.finish()
        sizes = {loss.workers for loss in crashes.losses(training)}
    assert_unharmed(training, end, digest, epochs=8)
    assert not sizes


def _gone(supervisor: SupervisorClient) -> list[int]:
    supervisor.poll()
    return [
        r.body["allocation"]
        for r in supervisor.reports
        if r.kind is ReportKind.ENGINE_GONE and r.body["kind"] != "finished"
    ]
