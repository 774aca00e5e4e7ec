"""Forks the processes of an elastic job. The supervisor has imported everything once, so they start in milliseconds.

``start`` starts the driver and the engines, which run the user's script: their output goes through pipes into log files
(``logs``), and the errors of user code come through a third pipe. The exit status tells the supervisor how the script
ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import selectors
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from edt_contract import processes
from edt_contract.encoding import dump_line
from edt_runner import context, frameworks
from edt_runner.errors import (
    ExitStatus,
    HelperLost,
    NoRoom,
    PeerLost,
    Suspended,
    TrainingFailed,
    is_lost_helper,
    status_of_lost_helper,
)
from edt_runner.protocol.channel import decode
from edt_runner.protocol.messages import ScriptEnded
from edt_runner.supervisor import logs, process_environment
from edt_runner.supervisor.forking import fork, send_signal
from edt_runner.supervisor.logs import LogPipe

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass
class Child:
    """One driver or engine."""

    pid: int
    outputs: list[LogPipe]
    failure_pipe: int
    """Read end of the pipe into which the child writes, at its end, the error that user code raised, or what the user
    should know about a script that has come to its end."""
    started: float
    """Monotonic seconds at which it was forked."""
    failure: ScriptEnded | None = None
    """What the child has written into the pipe, known when it is gone. None: nothing."""

    def signal(self, number: int) -> None:
        """Send the signal ``number`` to the child. Nothing happens if the child has ended."""
        send_signal(self.pid, number)

    def collect(self, selector: selectors.BaseSelector) -> None:
        """Read the child's last output and its failure, and close the pipes. Call this when the child is gone."""
        logs.end(self.outputs, selector)
        with contextlib.suppress(OSError, ValueError):
            message = decode(os.read(self.failure_pipe, 1 << 16))
            self.failure = message if isinstance(message, ScriptEnded) else None
        os.close(self.failure_pipe)


def start(process: context.Context, stem: str, selector: selectors.BaseSelector) -> Child:
    """Fork a child that runs the user's script.

    Args:
        process: the role of the child (driver or engine) and its attempt.
        stem: the child's output goes to ``stem``.out and ``stem``.err in the log folder.
        selector: reads the child's output.

    Raises:
        RunnerError: this process has more than one thread.
    """
    outputs = logs.open_pipes(process.spec.log_dir, stem)
    failure_pipe, writer = os.pipe()
    os.set_blocking(failure_pipe, False)
    descriptors = (outputs[0].writer, outputs[1].writer, writer)
    pid = fork(lambda: _run_script(process, *descriptors), keep=descriptors)
    os.close(writer)
    logs.follow(outputs, selector)
    return Child(pid, outputs, failure_pipe, time.monotonic())


# ── what a driver or an engine does, once it is forked ──────────────────────────────────────────────────────────
def _run_script(process: context.Context, stdout: int, stderr: int, failure_pipe: int) -> int:
    """Become the process that ``process`` describes, and run the user's script.

    Args:
        process: the role of this process (driver or engine) and its attempt.
        stdout, stderr: descriptors for the output.
        failure_pipe: descriptor for the error that user code raises.

    Returns:
        The exit status, as listed in ``ExitStatus``.

    Raises:
        BaseException: in an engine, an error that the end of a loader process has caused (``is_lost_helper``) and that
            is no HelperLost: torch's RuntimeError, or an error that user code has raised in place of either. ``fork``
            turns it into an exit status. HelperLost itself is caught here, and so is every other error of the script.
    """
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for descriptor in (stdout, stderr):
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    spec = process.spec
    processes.set_name(f"edt-{process.role}")
    processes.die_first()
    context.enter(replace(process, report_failure=lambda message, text: _report_failure(failure_pipe, message, text)))
    try:
        _prepare(process)
        os.chdir(spec.work_dir)
        main = Path(spec.main) if Path(spec.main).is_absolute() else Path(spec.work_dir) / spec.main
        sys.argv = [str(main), *spec.arguments]
        sys.path.insert(0, str(main.parent))
        runpy.run_path(str(main), run_name="__main__")
        status = 0 if process.role == "driver" else ExitStatus.NO_TRAINING
        if status:
            early = f"before {context.training} was through: its exception was caught, or its loop was left"
            how = early if context.training else "without calling train()"
            _report_failure(failure_pipe, f"the script ended in an engine {how}", "")
    except TrainingFailed as failure:
        _report_failure(failure_pipe, failure.message, "")
        status = 1
    except _Terminated:
        status = ExitStatus.TERMINATED
    except SystemExit as end:
        status = _status_of(end)
        if process.role == "engine" and status == 0:
            status = ExitStatus.NO_TRAINING
    except Suspended:
        status = ExitStatus.SUSPENDED
    except (PeerLost, HelperLost, NoRoom) as error:
        status = _lost(error, failure_pipe)
    except BaseException as error:
        if process.role == "engine" and is_lost_helper(error):
            raise  # ``fork`` turns it into an exit status
        message, text = _message(error), user_traceback(error)
        if more := frameworks.by_name(spec.framework).explain(error):
            message, text = f"{message}; {more}", f"{text}{more[0].upper()}{more[1:]}.\n"
        sys.stderr.write(text)
        _report_failure(failure_pipe, message, text)
        status = 1
    if status == 0 and context.remark:
        _report_failure(failure_pipe, context.remark, "")
    _run_exit_handlers()
    return status


def _lost(error: PeerLost | HelperLost | NoRoom, failure_pipe: int) -> int:
    """Print an error that the script did not cause; returns the exit status for it."""
    print(error, file=sys.stderr)
    if isinstance(error, HelperLost):
        return status_of_lost_helper(error)
    if isinstance(error, NoRoom):
        _report_failure(failure_pipe, str(error), "")
        return ExitStatus.NO_ROOM
    return ExitStatus.PEER_LOST


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames of ``edt_runner``, of the folders ``fabric_model`` and ``pyedt``, of runpy and
    of frozen modules. If the error or one of its causes has no other frames, it keeps all of them."""
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    return "".join(shown.format())


def _strip(shown: traceback.TracebackException) -> None:
    own = [frame for frame in shown.stack if not _is_runner_code(frame.filename)]
    if own:
        shown.stack = traceback.StackSummary.from_list(own)
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None:
            _strip(inner)


def _is_runner_code(filename: str) -> bool:
    path = Path(filename)
    return (
        filename.startswith("<frozen")
        or path.name == "runpy.py"
        or _PACKAGE in path.parents
        or path.parent.name in ("fabric_model", "pyedt")
    )


def _prepare(process: context.Context) -> None:
    spec = process.spec
    os.environ.update(process_environment.of(process, os.environ))
    if process.role == "engine":
        processes.keep_freed_memory(os.environ)
    else:
        signal.signal(signal.SIGTERM, _end_quietly)
    for folder in (spec.result_dir, spec.log_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    process_environment.link_result_folder(spec)
    from edt_runner import seeds

    seed = seeds.process_seed(spec.seed)
    seeds.seed_python(seed)
    frameworks.by_name(spec.framework).enter(spec.threads, seed)


class _Terminated(SystemExit):
    """The driver has got SIGTERM. The supervisor knows whether the job's user has stopped the job."""


def _end_quietly(number: int, frame: FrameType | None) -> None:
    raise _Terminated(128 + number)


def _status_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _message(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"[:800] if first else type(error).__name__


def _report_failure(failure_pipe: int, message: str, text: str) -> None:
    with contextlib.suppress(OSError):  # a pipe holds 64 KiB, and the text grows where JSON escapes characters
        os.write(failure_pipe, dump_line(ScriptEnded(message[:1000], text[-8000:])))


def _run_exit_handlers() -> None:
    """Do what the interpreter does at its end: wait for threads, run atexit handlers, flush output."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
