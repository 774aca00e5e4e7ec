"""Forks the processes of a job. The supervisor has imported everything once, so its children start in milliseconds.

``fork`` starts the coordinator and the process that shares files. ``start`` starts the driver and the engines, which
run the user's script: their output goes through pipes into log files, and the errors of user code come through a third
pipe. The exit status tells the supervisor how the script ended.

A fork is only safe from a process with one thread. numpy's OpenBLAS would start a pool of threads when it is imported,
so the supervisor is started with OPENBLAS_NUM_THREADS=1. Nothing in this process may compute, because that could start
another pool of threads.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import select
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from edt_contract import processes
from edt_contract.attempt import AttemptSpec
from edt_contract.durable import PatientLog
from edt_contract.encoding import dump_line
from edt_runner import context, environment, frameworks
from edt_runner.errors import (
    ExitStatus,
    HelperLost,
    NoRoom,
    PeerLost,
    RunnerError,
    Suspended,
    TrainingFailed,
    is_lost_helper,
    status_of_lost_helper,
)
from edt_runner.protocol.channel import decode
from edt_runner.protocol.messages import ScriptEnded
from edt_runner.supervisor import process_environment, users

_SHARE_SECONDS = 60.0
_PACKAGE = Path(__file__).resolve().parent.parent
_inherited: frozenset[int] = frozenset()
"""Descriptors that children keep open."""


def begin() -> None:
    """Note which descriptors are open now: standard streams, and descriptors that libraries have opened. Descriptors
    that are opened later are this process's own connections."""
    global _inherited  # noqa: PLW0603 - a process has one set of descriptors
    _inherited = frozenset(_open_descriptors())


def _open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            os.fstat(int(name))
            found.add(int(name))
    return found


def fork(run: Callable[[], int | None], *, keep: Iterable[int] = ()) -> int:
    """Fork a child that runs ``run``; returns the child's pid.

    The child runs as the script's user, dies with this process, and has default signal handling. It closes this
    process's own connections (``begin``), because a connection does not end while a copy of it is open.

    Args:
        run: called in the child; returns the child's exit status, or None for 0.
        keep: descriptors of own connections that stay open in the child.

    Raises:
        RunnerError: this process has more than one thread.
    """
    if processes.threads() != 1:
        raise RunnerError(f"the supervisor has {processes.threads()} threads and cannot fork safely")
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        users.become_script()
        processes.die_with(parent)  # after the change of user, which would undo it
        for descriptor in _open_descriptors() - _inherited - set(keep):
            os.close(descriptor)
        status = run() or 0
    except BaseException as error:
        if is_lost_helper(error):
            status = status_of_lost_helper(error)
        traceback.print_exc()
    finally:
        os._exit(status)


class LogPipe:
    """One output stream of one child, and its log file.

    A child never waits for its log, and never gets an error from a full disk.

    Args:
        path: the log file.
        limit: bytes at which the file is rotated: ``x.out`` becomes ``x.out.1``.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.log = PatientLog(path, limit=limit, opener=_open_log, mover=_move_log)
        self.log.write(b"")  # makes the file, also if the child prints nothing
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def pump(self) -> bool:
        """Move the output that has arrived into the log; returns False at the end of the stream."""
        try:
            data = os.read(self.reader, 1 << 18)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.log.write(data)
        return True

    def drain(self) -> None:
        """Move the remaining output into the log, and close pipe and log. Call this when the child is gone. It does not
        wait for processes that the child has started and that still hold the pipe."""
        while select.select([self.reader], [], [], 0)[0] and self.pump():
            pass
        os.close(self.reader)
        self.log.close()


@dataclass
class Child:
    """One driver or engine."""

    pid: int
    outputs: list[LogPipe]
    failure_pipe: int
    """Read end of the pipe into which the child writes, at its end, the error that user code raised."""
    started: float
    """Monotonic seconds at which it was forked."""
    failure: ScriptEnded | None = None
    """The error of user code, known when the child is gone. None: user code has not raised."""

    def signal(self, number: int) -> None:
        """Send the signal ``number`` to the child. Nothing happens if the child has ended."""
        send_signal(self.pid, number)

    def collect(self, selector: selectors.BaseSelector) -> None:
        """Read the child's last output and its failure, and close the pipes. Call this when the child is gone."""
        for pipe in self.outputs:
            with contextlib.suppress(KeyError):
                selector.unregister(pipe.reader)
            pipe.drain()
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
    limit = environment.log_limit_bytes()
    outputs = [LogPipe(Path(process.spec.log_dir) / f"{stem}.{stream}", limit) for stream in ("out", "err")]
    failure_pipe, writer = os.pipe()
    os.set_blocking(failure_pipe, False)
    descriptors = (outputs[0].writer, outputs[1].writer, writer)
    pid = fork(lambda: _run_script(process, *descriptors), keep=descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    for pipe in outputs:
        selector.register(pipe.reader, selectors.EVENT_READ, _pump(pipe, selector))
    return Child(pid, outputs, failure_pipe, time.monotonic())


def send_signal(pid: int, number: int) -> None:
    """Send the signal ``number`` to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def share_files(spec: AttemptSpec) -> None:
    """Let the platform read and delete the files that the script's user has written. A child does this; it is killed
    after a minute. If user code runs as this process's own user, nothing is done.

    Raises:
        RunnerError: this process has more than one thread.
    """
    if not users.separate():
        return
    folders = (spec.result_dir, spec.work_dir, spec.log_dir, spec.checkpoint_dir)
    pid = fork(lambda: users.share(folders))
    until = time.monotonic() + _SHARE_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.02)


def _pump(pipe: LogPipe, selector: selectors.BaseSelector) -> Callable[[], None]:
    def pump() -> None:
        if not pipe.pump():
            selector.unregister(pipe.reader)

    return pump


def _open_log(path: Path) -> int:
    """Open a log with the rights of the script's user, who owns the files in the job's folder. If the job has put a
    link there, the link is not followed; if it has put a pipe there, this does not wait for the pipe."""
    with users.as_script():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(path, flags, 0o666)


def _move_log(path: Path, to: Path) -> None:
    with users.as_script():
        path.replace(to)


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
