"""Describes in a sentence why a process of a gang failed. This module has no input or output."""

from __future__ import annotations

import re
import signal

_MOST = 800
"""Most characters of an exception's text."""
_PREFIX = re.compile(r"^(?:\[(?:rank|default)(\d+)\]:\s?|\[\d+,\d+\]<std(?:err|out)>:\s?)", re.ASCII)
"""What torch, torchrun and mpirun put before each line of a process's error output; torch gives the rank."""
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::\s.*|:)?$")
_LAUNCHER = re.compile(r"\b(?:ChildFailedError|SignalException)\b")
"""Exceptions of torchrun: a process that it started is the cause."""
_ROOT_CAUSE = re.compile(r"Root Cause.*?^\s*rank\s*:\s*(\d+)", re.S | re.M)
_CONSEQUENCE = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|broken ?pipe|connectionreseterror|connectionrefused"
    r"|connectionaborted|remote process exited|peer closed|socket closed|disterror|distbackenderror|distnetworkerror"
    r"|eoferror|unavailableerror|recv(?:value)?(?:timed out| failed)|gloo/transport",
    re.I,
)


def describe(words: str, code: int | None, number: int | None, errors: str, *, oom: bool) -> str:
    """The sentence.

    Args:
        words: what messages call the process.
        code: exit status; None: a signal ended it.
        number: number of that signal; None: it exited.
        errors: the end of its error output.
        oom: whether the kernel killed it because memory ran out.
    """
    if oom:
        return f"{words} was killed for memory"
    if number is not None:
        return f"{words} was killed by signal {number} ({_signal_name(number)})"
    if found := exception_of(errors):
        return f"{words}: {found[:_MOST]}"
    return f"{words} ended with status {code}"


def may_follow(message: str) -> bool:
    """Whether a failure may be the consequence of the failure of another process: a broken connection, for example."""
    return _CONSEQUENCE.search(message) is not None


def exception_of(errors: str) -> str:
    """The last line of the Python traceback that explains the end of a process; "": there is none.

    That is the last traceback, unless it is torchrun's: then it is that of the process which torchrun names as the root
    cause, or of the first process that has one.
    """
    found = _tracebacks(errors)
    if not found or not _LAUNCHER.search(found[-1][1]):
        return found[-1][1] if found else ""
    own = [each for each in found if not _LAUNCHER.search(each[1])]
    named = _ROOT_CAUSE.findall(errors)
    if named:
        own = [each for each in own if each[0] == named[-1]] or own
    first = next((each for each in own if not may_follow(each[1])), own[0] if own else None)
    return "" if first is None else first[1] + (f" (in its process of rank {first[0]})" if first[0] else "")


def _tracebacks(errors: str) -> list[tuple[str, str]]:
    """Rank (as text; "": not known) and exception of each traceback. Of chained exceptions only the last one counts.
    Lines of several processes may be mixed if each line has the rank before it."""
    open_ones: set[str] = set()
    found: list[tuple[str, str]] = []
    for line in errors.splitlines():
        match = _PREFIX.match(line)
        rank = (match.group(1) or "") if match else ""
        text = line[match.end() :] if match else line
        if text.strip() == _TRACEBACK:
            open_ones.add(rank)
        elif rank in open_ones and text and not text[0].isspace() and _EXCEPTION.match(text):
            open_ones.discard(rank)
            found.append((rank, text.strip()))
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
