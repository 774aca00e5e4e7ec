"""What a forked driver or engine does: run the user's main, and say how that ended. Room: runners; runs user code.

Exit statuses tell the supervisor apart what happened; an exception's text goes through the lifeline pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from edt_runner import context, exits, freed_memory, processes
from edt_runner import framework as frameworks
from edt_runner.engine import position
from edt_runner.errors import HelperLost, NoRoom, PeerLost, Suspended, TrainingFailed, is_lost_helper

_OURS = Path(__file__).resolve().parent.parent


def run_main(role: context.Context, stdout: int, stderr: int, lifeline: int) -> int:
    """Become ``role`` and run the user's main script; returns the exit status."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for descriptor in (stdout, stderr):
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    letter = role.letter
    processes.set_name(f"edt-{role.role}")
    processes.die_first()
    context.enter(replace(role, tell=lambda message, text: _tell(lifeline, message, text)))
    try:
        _prepare(role)
        os.chdir(letter.work_dir)
        main = Path(letter.main) if Path(letter.main).is_absolute() else Path(letter.work_dir) / letter.main
        sys.argv = [str(main), *letter.arguments]
        sys.path.insert(0, str(main.parent))
        runpy.run_path(str(main), run_name="__main__")
        status = 0 if role.role == "driver" else exits.NO_TRAINING
        if status:
            _tell(lifeline, f"the script ended in an engine {_how_early()}", "")
    except TrainingFailed as failure:
        _tell(lifeline, failure.message, "")
        status = 1
    except _Terminated:
        status = exits.TERMINATED
    except SystemExit as end:
        status = _status_of(end)
        if role.role == "engine" and status == 0:
            status = exits.NO_TRAINING
    except Suspended:
        status = exits.SUSPENDED
    except (PeerLost, HelperLost, NoRoom) as error:
        status = _lost(error, lifeline)
    except BaseException as error:
        if role.role == "engine" and is_lost_helper(error):
            raise  # whoever forked this process knows it for what it is
        message, text = _message(error), user_traceback(error)
        if more := frameworks.by_name(letter.framework).explain(error):
            message, text = f"{message}; {more}", f"{text}{more[0].upper()}{more[1:]}.\n"
        sys.stderr.write(text)
        _tell(lifeline, message, text)
        status = 1
    _run_exit_handlers()
    return status


def _lost(error: PeerLost | HelperLost | NoRoom, lifeline: int) -> int:
    """What is nobody's fault here is said; the exit status tells it."""
    print(error, file=sys.stderr)
    if isinstance(error, HelperLost):
        return exits.of_lost_helper(error)
    if isinstance(error, NoRoom):
        _tell(lifeline, str(error), "")
        return exits.NO_ROOM
    return exits.PEER_LOST


def _how_early() -> str:
    if not context.training:
        return "without calling train()"
    return f"before {context.training} was through: its exception was caught, or its loop was left"


def user_traceback(error: BaseException) -> str:
    """The traceback as the user would see it without us: frames of this package and of runpy are left out."""
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    return "".join(shown.format())


def _strip(shown: traceback.TracebackException) -> None:
    own = [frame for frame in shown.stack if not _is_ours(frame.filename)]
    if own:
        shown.stack = traceback.StackSummary.from_list(own)
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None:
            _strip(inner)


def _is_ours(filename: str) -> bool:
    path = Path(filename)
    return (
        filename.startswith("<frozen")
        or path.name == "runpy.py"
        or _OURS in path.parents
        or path.parent.name in ("fabric_model", "pyedt")
    )


def _prepare(role: context.Context) -> None:
    letter = role.letter
    os.environ.update(letter.environ)
    os.environ.setdefault("OMP_NUM_THREADS", str(letter.threads))
    if role.role == "engine":
        if role.page is not None:
            position.take(role.page, role.name)
        os.environ["CUDA_VISIBLE_DEVICES"] = "" if role.device == "cpu" else role.device
        freed_memory.keep(os.environ)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the driver holds no slot and sees no GPU
        signal.signal(signal.SIGTERM, _end_quietly)
    for folder in (letter.result_dir, letter.log_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
    from edt_runner.engine import seeds  # NumPy, which reads the variables above when it is imported

    seed = seeds.process_seed(letter.seed)
    seeds.seed_python(seed)
    frameworks.by_name(letter.framework).enter(letter.threads, seed)


class _Terminated(SystemExit):
    """SIGTERM has come from outside: of its user's stop the supervisor knows more than this says."""


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


def _tell(lifeline: int, message: str, text: str) -> None:
    data: dict[str, Any] = {"message": message[:1000], "traceback": text[-8000:]}  # a pipe holds 64 KiB, escaped
    with contextlib.suppress(OSError):
        os.write(lifeline, json.dumps(data).encode())


def _run_exit_handlers() -> None:
    """What the interpreter would do at its end: wait for threads, run atexit, flush."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
