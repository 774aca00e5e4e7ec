"""A variable that a supervisor itself reads, and cannot, is an error of the job that says what the variable takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edt_contract.attempt import GANG_PROTOCOL
from edt_contract.gang import Gang, GangCommand, GangNode, Processes
from edt_runner import environment
from edt_runner.errors import UsageError
from edt_runner.launch.supervisor_client import SupervisorClient
from support.training import spec_for

ELASTIC, GANG = None, Gang(GangCommand(("true",), Processes.WORKER), 1, (GangNode("alpha", "127.0.0.1", (11,)),))


@pytest.mark.parametrize("text", ["64M", "nan", "inf", "-inf"])
def test_a_size_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("EDT_LOG_LIMIT_MIB", text)
    with pytest.raises(UsageError, match=f"EDT_LOG_LIMIT_MIB: got '{text}', takes a (finite )?number"):
        environment.log_limit_bytes()


def test_a_time_may_be_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDT_HANG_SECONDS", "inf")
    assert environment.hang_seconds() == float("inf")


@pytest.mark.parametrize(
    ("gang", "name", "of_the_job"),
    [
        (GANG, "EDT_LOG_LIMIT_MIB", True),
        (GANG, "EDT_LOG_LIMIT_MIB", False),
        pytest.param(ELASTIC, "EDT_LOG_LIMIT_MIB", True, marks=pytest.mark.extended),
        (ELASTIC, "EDT_HANG_SECONDS", True),
    ],
)
def test_a_wrong_variable_of_a_supervisor_is_an_error_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gang: Gang | None, name: str, of_the_job: bool
) -> None:
    main = tmp_path / "main.py"
    main.write_text("")
    if not of_the_job:
        monkeypatch.setenv(name, "much")
    spec = spec_for(tmp_path, main, environ={name: "much"} if of_the_job else {})
    if gang is not None:
        spec = replace(spec, gang=gang, node="alpha", protocol=GANG_PROTOCOL)
    with SupervisorClient(spec) as supervisor:
        end = supervisor.ended(60)
    whose = "the job" if of_the_job else "node alpha"
    message = f"a variable in the environment of {whose} is wrong: {name}: got 'much', takes a number"
    assert (end["kind"], end["message"], end["whole"]) == ("script-error", message, True)
