"""What runs on this machine, as /proc tells it."""

from __future__ import annotations

import os
import subprocess

from edt_agent.processes import bearers, environment
from edt_contract.processes import TAG_VARIABLE

FOR_EVER = 'exec /bin/sh -c "$AGAIN"'


def test_a_process_that_becomes_another_program_is_never_taken_for_nobodys() -> None:
    environ = {TAG_VARIABLE: "t", "AGAIN": FOR_EVER}
    with subprocess.Popen(["/bin/sh", "-c", FOR_EVER], env=environ) as process:
        try:
            assert {environment(process.pid).get(TAG_VARIABLE) for _ in range(5000)} == {"t"}
        finally:
            process.kill()


def test_a_process_without_an_environment_is_not_waited_for() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as process:
        try:
            assert environment(process.pid) == {}
            assert process.pid not in {found.id.pid for found in bearers({TAG_VARIABLE: "t"})}
        finally:
            process.kill()
    assert environment(process.pid) == {}
    assert environment(os.getpid())["PATH"]
