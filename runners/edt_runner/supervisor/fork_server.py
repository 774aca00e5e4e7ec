"""Forking the processes of a job: a process that has imported everything once, and children that start in milliseconds.

``fork`` is used for the coordinator and for sharing files, ``start`` for the driver and for engines, which run the
user's script: their output goes through pipes into log files, and what user code raises comes through a third pipe. How
the script ended the supervisor learns from the exit status.

A fork is only safe from a process with one thread. numpy's OpenBLAS starts a pool of threads when it is imported, hence
OPENBLAS_NUM_THREADS=1, and nothing in this process may compute, because another pool would start.
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
from edt_runner.supervisor import users

_SHARE_SECONDS = 60.0
_PACKAGE = Path(__file__).resolve().parent.parent
_inherited: frozenset[int] = frozenset()
"""Descriptors that children keep."""


def begin() -> None:
    """Note which descriptors are open by now: standard streams, and what libraries have opened. Those that are opened
    from now on are this process's own connections."""
    global _inherited  # noqa: PLW0603 - a process has one set of descriptors
    _inherited = frozenset(_open_descriptors())


def _open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the one that the listing itself was read by is closed
            os.fstat(int(name))
            found.add(int(name))
    return found


def fork(run: Callable[[], int | None], *, keep: Iterable[int] = ()) -> int:
    """Fork a child that runs ``run`` ; returns the child's pid.

    The child runs as the script's user, dies with this process, and has default signal handling. It closes this
    process's own connections (``begin``): a copy would keep them from ever ending.

    Args:
        run: what the child does; returns its exit status, or None for 0.
        keep: descriptors of such connections that stay open in the child.

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
        processes.die_with(parent)  # which a change of user would undo
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
    """One output stream of one child, and the log file that it goes into.

    At ``limit`` bytes the file is rotated: ``x.out`` becomes ``x.out.1``. A child never waits for its log, and
    never learns of a full disk.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.log = PatientLog(path, limit=limit, opener=_open_log, mover=_move_log)
        self.log.write(b"")  # there from the beginning, whether or not anything is printed
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def pump(self) -> bool:
        """Move what has arrived into the log; False at the end of the stream."""
        try:
            data = os.read(self.reader, 1 << 18)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.log.write(data)
        return True

    def drain(self) -> None:
        """Take what is there and close: the child is gone, and its own children that hold its end do not count."""
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
    """Read end of the pipe on which it says, at its end, what user code raised."""
    started: float
    """Monotonic seconds."""
    failure: ScriptEnded | None = None
    """Known once it is gone. None: user code has not raised."""

    def signal(self, number: int) -> None:
        """Signal it; nothing happens if it has ended."""
        send_signal(self.pid, number)

    def collect(self, selector: selectors.BaseSelector) -> None:
        """Take what it wrote last; called when it is gone."""
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
        process: whether it is the driver or an engine, and of which attempt.
        stem: its output goes to ``stem``.out and ``stem``.err in the log folder.
        selector: where its output is read.
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
    """Signal a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def share_files(spec: AttemptSpec) -> None:
    """Let the platform read and delete what the script's user has written; at most a minute long. Does nothing where
    user code runs as this process's own user."""
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
    """Open as the script's user, who owns all that is in the job's folder. A link that the job may have put there is
    not followed, and a pipe is not waited for."""
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
        process: driver or engine, and of which attempt.
        stdout, stderr: descriptors that its output goes to.
        failure_pipe: descriptor to which what user code raises is written.

    Returns:
        The exit status, as ``ExitStatus`` says.

    Raises:
        BaseException: in an engine, an error that a loader process's end has caused (``is_lost_helper``) and that is
            no HelperLost: torch's RuntimeError, or what user code has made of either. ``fork`` turns it into an exit
            status. HelperLost itself is caught here, and so is every other error of the script.
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
            raise  # ``fork`` knows the exit status for it
        message, text = _message(error), user_traceback(error)
        if more := frameworks.by_name(spec.framework).explain(error):
            message, text = f"{message}; {more}", f"{text}{more[0].upper()}{more[1:]}.\n"
        sys.stderr.write(text)
        _report_failure(failure_pipe, message, text)
        status = 1
    _run_exit_handlers()
    return status


def _lost(error: PeerLost | HelperLost | NoRoom, failure_pipe: int) -> int:
    """Print an error that is not the script's; returns the exit status that says so."""
    print(error, file=sys.stderr)
    if isinstance(error, HelperLost):
        return status_of_lost_helper(error)
    if isinstance(error, NoRoom):
        _report_failure(failure_pipe, str(error), "")
        return ExitStatus.NO_ROOM
    return ExitStatus.PEER_LOST


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames of ``edt_runner``, of the folders ``fabric_model`` and ``pyedt``, of runpy and
    of frozen modules. The error and each of its causes keep all their frames where no other would be left."""
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
    os.environ.update(spec.environ)
    os.environ.setdefault("OMP_NUM_THREADS", str(spec.threads))
    if process.role == "engine":
        os.environ["CUDA_VISIBLE_DEVICES"] = "" if process.device == "cpu" else process.device
        processes.keep_freed_memory(os.environ)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the driver holds no slot and sees no GPU
        signal.signal(signal.SIGTERM, _end_quietly)
    for folder in (spec.result_dir, spec.log_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    from edt_runner import seeds

    seed = seeds.process_seed(spec.seed)
    seeds.seed_python(seed)
    frameworks.by_name(spec.framework).enter(spec.threads, seed)


class _Terminated(SystemExit):
    """SIGTERM has come from outside. The supervisor itself knows whether the job's user has stopped it."""


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
    with contextlib.suppress(OSError):  # a pipe holds 64 KiB, and what is escaped grows
        os.write(failure_pipe, dump_line(ScriptEnded(message[:1000], text[-8000:])))


def _run_exit_handlers() -> None:
    """Do what the interpreter does at its end: wait for threads, run atexit, flush."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
