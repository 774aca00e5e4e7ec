"""A user's loop that is left before its end, in an engine. Room: runners.

Code behind the loop is the driver's, so an engine that comes there has to end. A generator is closed where its loop is
left, whether by ``break`` or by an exception on its way out; which of the two it is, only the instruction tells at
which the loop's frame stands. An exception needs no help: it ends the process by itself.
"""

from __future__ import annotations

import dis
import inspect
import sys
import traceback
from types import FrameType

from edt_runner import context
from edt_runner.engine.link import leave_process

_DROPPING = frozenset({"POP_TOP", "POP_ITER", "SWAP"})
"""What ``break`` and ``return`` are made of: the loop's iterator is dropped. Instructions that raise are others."""


def left_by(name: str) -> None:
    """Called while a generator is closed. Ends this process if it is an engine whose user has left the loop ``name``
    by ``break`` or ``return``; returns otherwise."""
    role, frame = context.current(), _dropping(sys._getframe(1))
    if role is None or role.role != "engine" or role.tell is None or frame is None:
        return
    message = (
        f"UsageError: {name}: the loop was left by break or return; takes a loop that runs to its end, since each "
        "engine has batches of its own and the code behind the loop belongs to the driver"
    )
    stack = traceback.format_list(traceback.extract_stack(frame, limit=1))
    text = "".join(["Traceback (most recent call last):\n", *stack, message, "\n"])
    sys.stderr.write(text)
    role.tell(message, text)
    leave_process(1)


def _dropping(frame: FrameType | None) -> FrameType | None:
    """The user's frame that has left the loop; None: it was not left so. Between it and the loader may be generators,
    such as a progress bar's."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != __name__.partition(".")[0]:
            if _drops(frame):
                return frame
            if not frame.f_code.co_flags & inspect.CO_GENERATOR:
                return None
        frame = frame.f_back
    return None


def _drops(frame: FrameType) -> bool:
    return frame.f_lasti >= 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]] in _DROPPING
