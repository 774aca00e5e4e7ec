"""The errors of a training that a notebook has sent away.

RunnerError
├── JobFailed       the job has ended without a trained model; the message has its last lines
└── NoPlatform      the platform that was named cannot be used; the message says how to train without it
"""

from __future__ import annotations

from edt_runner.errors import RunnerError


class JobFailed(RunnerError):
    """The job has ended without a trained model.

    Args:
        job: the job's id.
        why: why it has ended, in a sentence.
        lines: the last lines that it wrote; empty: it wrote none.
    """

    def __init__(self, job: str, why: str, lines: str = "") -> None:
        super().__init__(f"{job}: {why}" + (f"\n--- the last lines of its log ---\n{lines}" if lines else ""))
        self.job, self.why, self.lines = job, why, lines


class NoPlatform(RunnerError):
    """The platform that was named cannot be used."""
