"""A job that trains on a puppet's node, and whose first engine reports where the time of its steps goes."""

from __future__ import annotations

from edt_contract.encoding import to_json_object
from edt_contract.reports import ExitKind, ReportKind
from edt_runner.engine.step_profile import StepProfile
from edt_scheduler.decide.reconcile import look
from edt_scheduler.views import JobView
from support.puppets import Puppet
from support.served_api import ServedApi

QUICK, SLOW = [1000, 20000, 25000, 2000, 500, 19200, 1000, 500], [1000, 28000, 35200, 3000, 500, 0, 1000, 500]
"""Microseconds in each phase: 48 ms and 67.2 ms of work of its own, in a step of 69.2 ms."""


class Training:
    """A job of two workers, which trains on slots of the node, and what its first engine reports."""

    def __init__(self, api: ServedApi, node: Puppet, user: str = "ana") -> None:
        self.node = node
        self.job: JobView = api.submit(user, "--exec-start edtPyTorch --numWorker 2 --model-main main.py")
        for _ in range(3):
            look(api.platform)
            self.node.obey()
        self.engines = sorted(self.node.running[self.key])
        self.profile = StepProfile()
        self.path = f"/api/v1/jobs/{self.job.exec_id}"

    @property
    def key(self) -> tuple[str, int]:
        return self.job.exec_id, 1

    def report(self, *rows: list[int], micro_batches: tuple[int, ...] = (2, 2), windows: int = 1) -> None:
        """Report the means of ``windows`` windows of steps, each with these rows."""
        for _ in range(windows):
            self.profile.add([str(engine) for engine in self.engines], micro_batches, rows)
            times = self.profile.taken()
            assert times is not None
            body = {"step": 10, "loss": 0.5, "metrics": {}, "step_times": to_json_object(times)}
            self.node.report(self.key, ReportKind.PROGRESS, **body)

    def end(self) -> None:
        if self.key in self.node.running:
            self.node.end(self.key, ExitKind.FINISHED)
