"""Where a step's time goes: from an engine's report to what a client reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edt_contract.reports import ReportKind
from support.puppets import Puppet
from support.served_api import ServedApi
from support.step_times import QUICK, SLOW, Training


@pytest.fixture(scope="module")
def node(api: ServedApi) -> Puppet:
    return Puppet(api.platform, name="n1", slots=2).join()


@pytest.fixture
def training(api: ServedApi, node: Puppet) -> Iterator[Training]:
    training = Training(api, node)
    yield training
    training.end()


def read(api: ServedApi, path: str, user: str = "ana") -> Any:
    response = api.client(user).get(path)
    assert response.status_code == 200, response.text
    return response.json()


def test_before_the_first_report_there_are_no_steps(api: ServedApi, training: Training) -> None:
    assert read(api, training.path)["efficiency"] is None
    found = read(api, f"{training.path}/step-times")
    assert (found["steps"], found["engines"], found["efficiency"], found["remarks"]) == (0, [], None, [])


def test_who_may_not_see_the_job_does_not_see_its_times(api: ServedApi, training: Training) -> None:
    training.report(QUICK, SLOW)
    assert api.client("bob").get(f"{training.path}/step-times").status_code == 404


def test_each_engine_has_its_place_and_its_seconds_and_one_that_is_slow_for_long_a_sentence(
    api: ServedApi, training: Training
) -> None:
    first, second = training.engines
    training.report(QUICK, SLOW, windows=7)
    found = read(api, f"{training.path}/step-times")
    assert (found["steps"], found["step_seconds"], found["time"] > 0) == (1, 0.0692, True)
    assert [(each["rank"], each["allocation"], each["node"], each["slot"]) for each in found["engines"]] == [
        (0, first, "n1", "0"),
        (1, second, "n1", "1"),
    ]
    assert found["engines"][0]["seconds"] == {
        "data": 0.001, "forward": 0.02, "backward": 0.025, "copies": 0.002,
        "reduce": 0.0005, "wait": 0.0192, "apply": 0.001, "other": 0.0005,
    }  # fmt: skip
    assert [round(each["efficiency"], 3) for each in found["engines"]] == [0.65, 0.913]
    assert read(api, training.path)["efficiency"] == found["efficiency"] == pytest.approx(108.2 / 138.4)
    assert (found["waited_for"], found["waited_seconds"], found["remarks"]) == (second, 0.0192, [])

    training.report(QUICK, SLOW)
    found = read(api, f"{training.path}/step-times")
    assert found["remarks"] == [
        f"Engine {second} on node n1, slot 1 is 40 % slower than the other one, which waits 19.2 ms a step for it."
    ]
    assert [each["slower"] for each in found["engines"]] == [None, 0.4]

    training.report([2 * each for each in QUICK], SLOW, micro_batches=(4, 2))
    assert read(api, f"{training.path}/step-times")["remarks"] == [
        f"Engine {second} on node n1, slot 1 is 40 % slower than the other one; it gets fewer micro-batches."
    ]

    training.end()
    assert read(api, training.path)["state"] == "FINISHED"
    assert read(api, f"{training.path}/step-times")["remarks"] == [
        f"Engine {second} on node n1, slot 1 was 40 % slower than the other one; it got fewer micro-batches."
    ]


def test_a_progress_report_without_times_leaves_those_that_are_known(api: ServedApi, training: Training) -> None:
    training.report(QUICK, QUICK)
    training.node.report(training.key, ReportKind.PROGRESS, step=12, loss=0.25, metrics={}, step_times=None)
    job = read(api, training.path)
    assert (job["progress"]["step"], round(job["efficiency"], 2)) == (12, 0.65)
    assert "step_times" not in job["progress"]
    listed = read(api, "/api/v1/jobs")["items"][0]
    assert listed["efficiency"] == job["efficiency"]


def test_an_engine_that_is_not_of_the_job_has_no_place(api: ServedApi, node: Puppet) -> None:
    """A script can forge what its engines report. It must not find out so where other jobs run."""
    before = Training(api, node, "bob")
    before.end()
    training = Training(api, node)
    foreign = training.engines[1] = before.engines[0]
    training.report(QUICK, SLOW, windows=8)
    found = read(api, f"{training.path}/step-times")
    assert [(each["node"], each["slot"]) for each in found["engines"]] == [("n1", "0"), (None, None)]
    assert found["remarks"][0].startswith(f"Engine {foreign} is 40 % slower")
    training.end()


def test_of_many_engines_the_slowest_and_fastest_are_listed_and_the_others_have_a_mean(
    api: ServedApi, training: Training
) -> None:
    training.engines += range(1000, 1098)
    training.report(*[QUICK] * 99, SLOW, micro_batches=(2,) * 100)
    found = read(api, f"{training.path}/step-times")
    assert (len(found["engines"]), found["others"]) == (16, 84)
    assert found["mean_of_others"]["seconds"]["forward"] == 0.02
    assert found["mean_of_others"]["micro_batches"] == 2.0
    assert found["waited_for"] == 1097
    training.report(*[QUICK] * 99, SLOW, micro_batches=(2,) * 100, windows=7)
    assert read(api, f"{training.path}/step-times")["remarks"] == [
        "Engine 1097 is 40 % slower than the others, which wait 19.2 ms a step for it."
    ]
