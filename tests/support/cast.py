"""Who plays in a job: its living processes by what they are, on all nodes of a test's platform."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from checker.home_files import Register
from checker.machine import Process, processes
from support.running_platform import Platform
from support.waiting import until


@dataclass(frozen=True)
class Cast:
    """The processes of a job at one instant."""

    processes: tuple[Process, ...]

    def named(self, name: str, node: str | None = None) -> set[int]:
        """pids of ``engine``, ``driver``, ``coordinator`` or ``supervisor``, on one node or on all."""
        return {
            each.pid for each in self.processes if each.name == f"edt-{name}" and (node is None or each.node == node)
        }

    def one(self, name: str) -> int:
        """The only one of this name."""
        [pid] = self.named(name)
        return pid

    @property
    def engines(self) -> set[int]:
        return self.named("engine")


def cast(platform: Platform, job: str) -> Cast:
    """Everybody who lives of a job now."""
    living = processes(platform.tag)
    register = Register(platform.home)
    register.learn(living)
    return Cast(
        tuple(
            each
            for each in living
            if (attempt := register.attempt_of.get(each.life)) is not None and attempt.job == job
        )
    )


def kill_and_await_another(platform: Platform, job: str, name: str) -> None:
    """SIGKILL to the job's driver or coordinator, and wait for the next one."""
    victim = cast(platform, job).one(name)
    platform.checker.disturbed()
    os.kill(victim, signal.SIGKILL)
    until(lambda: cast(platform, job).named(name) - {victim}, 60, f"another {name}")
