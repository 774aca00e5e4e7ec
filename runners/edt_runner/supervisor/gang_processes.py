"""Starts the processes of a gang on this node, and tells how they ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from edt_contract import processes
from edt_contract.attempt import AttemptSpec, DesiredSlot
from edt_contract.reports import ExitKind
from edt_runner.supervisor import forking, gang_failures, logs, process_environment
from edt_runner.supervisor.gang_layout import Member
from edt_runner.supervisor.logs import LogPipe

_TAIL_BYTES = 1 << 16
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


@dataclass
class GangProcess:
    """One process of a gang that runs."""

    pid: int
    member: Member
    slots: tuple[DesiredSlot, ...]
    """The slots that it holds."""
    outputs: list[LogPipe]
    """Its output and its error output; empty: it shares those of the supervisor."""
    failure_pipe: int
    """Read end of the pipe into which the child writes why it could not run the command."""
    started: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""

    def collect(self, selector: selectors.BaseSelector) -> tuple[str, list[LogPipe]]:
        """Read the last output. Call this when the process is gone.

        Returns:
            Why it could not run its command ("": it ran it), and the pipes that processes which it has started still
            hold.
        """
        left = logs.read_last(self.outputs, selector)
        not_run = ""
        with contextlib.suppress(OSError):
            not_run = os.read(self.failure_pipe, 4096).decode(errors="replace")
        os.close(self.failure_pipe)
        return not_run, left

    @property
    def errors(self) -> str:
        """The end of its error output."""
        return self.outputs[-1].tail.decode(errors="replace") if self.outputs else ""


@dataclass(frozen=True)
class GangEnd:
    """How a process of a gang ended."""

    process: GangProcess
    code: int | None
    """Exit status; None: a signal ended it."""
    signal: int | None
    """Number of the signal that ended it; None: it exited."""
    message: str
    """What went wrong; "": nothing, it exited with 0."""
    oom: bool
    """Whether the kernel killed it because memory ran out."""
    seconds: float
    """Seconds from its start to its end."""

    @classmethod
    def of(cls, process: GangProcess, status: int, not_run: str, *, oom: bool) -> GangEnd:
        """The end of ``process``.

        Args:
            process: the process.
            status: its wait status.
            not_run: why it could not run its command; "": it ran it.
            oom: whether the kernel killed it because memory ran out.
        """
        code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
        words = process.member.words
        message = "" if code == 0 else gang_failures.describe(words, code, number, process.errors, oom=oom)
        seconds = round(time.monotonic() - process.started, 3)
        return cls(process, code, number, not_run or message, oom, seconds)

    @property
    def failed(self) -> bool:
        return self.code != 0

    def report_bodies(self, kind: ExitKind) -> list[dict[str, Any]]:
        """The bodies of ENGINE_GONE, one for each slot that the process held."""
        return [
            {
                "allocation": slot.allocation,
                "slot": slot.slot,
                "kind": kind.value,
                "code": self.code,
                "signal": self.signal,
                "seconds": self.seconds,
                "oom": self.oom and kind is ExitKind.SCRIPT_ERROR,
                "message": self.message if kind is ExitKind.SCRIPT_ERROR else "",
            }
            for slot in self.process.slots
        ]


def start_command(
    member: Member,
    slots: tuple[DesiredSlot, ...],
    spec: AttemptSpec,
    words: Sequence[str],
    environ: Mapping[str, str],
    selector: selectors.BaseSelector,
) -> GangProcess:
    """Start a process that runs the gang's command.

    Args:
        member: the process.
        slots: the slots that it holds.
        spec: the attempt.
        words: the program and its arguments.
        environ: all variables of the process.
        selector: reads its output.

    Raises:
        RunnerError: this process has more than one thread.
    """
    outputs = logs.open_pipes(spec.log_dir, f"rank-{member.rank}", _TAIL_BYTES)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    stdout, stderr = (pipe.writer for pipe in outputs)

    def run() -> NoReturn:
        _enter(f"edt-rank-{member.rank}")
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in (stdout, stderr):
            os.close(descriptor)
        _run_command(spec, words, environ, writer)

    pid = forking.fork(run, keep=[stdout, stderr, writer])
    os.close(writer)
    logs.follow(outputs, selector)
    return GangProcess(pid, member, slots, outputs, reader)


def start_server(
    member: Member, slots: tuple[DesiredSlot, ...], serve: Callable[[], None], keep: Sequence[int]
) -> GangProcess:
    """Start a process of ours on a worker that runs no command.

    Args:
        member: the process.
        slots: the slots that it holds.
        serve: what it does.
        keep: descriptors that stay open in it.

    Raises:
        RunnerError: this process has more than one thread.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.close(writer)

    def run() -> None:
        _enter("edt-rsh-server")
        serve()

    return GangProcess(forking.fork(run, keep=keep), member, slots, [], reader)


def _enter(name: str) -> None:
    """Begin a new process: it leads a session of its own, so that signals reach what it starts."""
    os.setsid()
    processes.set_name(name)
    processes.die_first()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _run_command(spec: AttemptSpec, words: Sequence[str], environ: Mapping[str, str], failure_pipe: int) -> NoReturn:
    status = _NOT_EXECUTABLE
    try:
        for folder in (spec.result_dir, spec.log_dir):
            Path(folder).mkdir(parents=True, exist_ok=True)
        process_environment.link_result_folder(spec)
        os.chdir(spec.work_dir)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the program would inherit that
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(words[0], list(words), dict(environ))  # noqa: S606 - the user's own command
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        why = _why_not_run(spec, words[0], environ, error)
        os.write(2, f"{why}\n".encode(errors="replace"))
        os.write(failure_pipe, why.encode(errors="replace")[:4000])
    os._exit(status)


def _why_not_run(spec: AttemptSpec, program: str, environ: Mapping[str, str], error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename and str(error.filename) == spec.work_dir:
        return f"the folder {spec.work_dir} cannot be used on node {spec.node}: {reason}"
    path = environ.get("PATH", os.defpath)
    where = f"on node {spec.node}" + ("" if "/" in program else f" (PATH {path})")
    if isinstance(error, FileNotFoundError):
        if shutil.which(program, path=path):
            return (
                f"the command {program!r} cannot be run {where}: the interpreter that its first line names is missing"
            )
        return f"the command {program!r} was not found {where}"
    return f"the command {program!r} cannot be run {where}: {reason}"
