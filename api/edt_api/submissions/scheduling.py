"""What a submission says of its place among others: its queue, its sizes, what comes before it, and until when. Pure.

args.py reads the options. What depends on other parts of the submission or on the time is looked at here, later.
"""

from __future__ import annotations

import datetime
import re

from edt_api.errors import ArgumentsInvalid
from edt_scheduler.model.catalogue import MOST_WORKERS
from edt_scheduler.model.jobs import exec_id, job_number

PLAN = "openedt"
"""The name that WMLA's clients see in place of the root of all queues: its queue ``/research`` is their plan
``/openedt/research``."""
LONGEST_PATH = 1024
MOST_AFTER = 100
MOST_MODELS = 16
LONGEST_MODEL = 256
LONGEST_SECONDS = 3650 * 86_400

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})")
_NUMBER = re.compile(r"[0-9]{1,10}")

TAKES_QUEUE = f"the path of a queue, such as /research/vision, of at most {LONGEST_PATH} characters"
TAKES_DURATION = "a time of at most 3650 days with its unit, such as 30s, 90m, 6h or 2d"
TAKES_DEADLINE = (
    "a time to come with its time zone, such as 2026-12-01T08:00Z, or from now on, such as +90m, +6h or +2d"
)
TAKES_SIZES = f"numbers of workers from 1 to {MOST_WORKERS}, separated by commas, such as 1,2,4,8"
TAKES_JOBS = f"ids of at most {MOST_AFTER} jobs, separated by commas, such as edt-3,edt-7"
TAKES_MODELS = f"names of at most {MOST_MODELS} GPU models as `edt nodes` shows them, separated by commas"


def queue_path(text: str) -> str | None:
    """Return the path of the queue that ``text`` names, such as ``/research/vision``; "": the root; None: it is longer
    than any path.

    The slash at its begin may be left out, and WMLA's name of the root may come first.
    """
    parts = [part for part in text.strip().split("/") if part]
    if parts[:1] == [PLAN]:
        parts = parts[1:]
    return "".join(f"/{part}" for part in parts) if len(text) <= LONGEST_PATH else None


def plan_path(queue: str) -> str:
    """Return the path of a queue as WMLA's clients know it."""
    return f"/{PLAN}{queue}"


def duration(text: str) -> float | None:
    """Return the seconds of ``90m``; None: it is no such text, or no time that can be kept to."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    return seconds if 1 <= seconds <= LONGEST_SECONDS else None


def deadline(text: str, now: float) -> float | None:
    """Return the time that ``2026-12-01T08:00Z`` or ``+6h`` names, in seconds since the epoch; None: it names none."""
    if text.startswith("+"):
        later = duration(text[1:])
        return now + later if later is not None else None
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def due(given: str | None, now: float) -> float | None:
    """Return the time of a ``--deadline``, in seconds since the epoch; None: there is none.

    Raises:
        ArgumentsInvalid: it is not to come.
    """
    if given is None:
        return None
    found = deadline(given, now)
    if found is None or found <= now:
        raise ArgumentsInvalid("--deadline", f"{given!r}, which is past", TAKES_DEADLINE)
    return found


def sizes(text: str) -> tuple[int, ...] | None:
    """Return the numbers in ``1,2,4``, smallest first; None: it is no such list."""
    words = [word.strip() for word in text.split(",")]
    if not all(_NUMBER.fullmatch(word) and 1 <= int(word) <= MOST_WORKERS for word in words):
        return None
    return tuple(sorted({int(word) for word in words}))


def jobs(text: str) -> tuple[str, ...] | None:
    """Return the ids in ``edt-3,edt-7``, each once; None: it is no such list."""
    numbers = [job_number(word.strip()) for word in text.split(",")]
    if len(numbers) > MOST_AFTER:
        return None
    found = [number for number in numbers if number is not None]
    return tuple(exec_id(number) for number in dict.fromkeys(found)) if len(found) == len(numbers) else None


def models(text: str) -> tuple[str, ...] | None:
    """Return the names of GPU models in a list, in lower case; None: it is no such list."""
    names = [" ".join(word.split()).lower() for word in text.split(",")]
    if len(names) > MOST_MODELS or not all(0 < len(name) <= LONGEST_MODEL for name in names):
        return None
    return tuple(dict.fromkeys(names))


def in_slots(
    num_worker: int, devices: int, min_workers: int | None, only: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Return the fewest slots of an elastic job, and the only numbers of slots that it may have; empty: any.

    Args:
        num_worker: the most workers.
        devices: slots of each worker.
        min_workers: the fewest workers; None: one, or the first of ``only``.
        only: the only numbers of workers, smallest first; empty: any.

    Raises:
        ArgumentsInvalid: these do not go together.
    """
    least = min_workers or 1
    if least > num_worker:
        raise ArgumentsInvalid(
            "--minWorkers", str(least), f"a whole number up to --numWorker, which is {num_worker} here"
        )
    if only and only[-1] > num_worker:
        takes = f"numbers up to --numWorker, which is {num_worker} here"
        raise ArgumentsInvalid("--sizes", ",".join(map(str, only)), takes)
    if only and only[-1] < least:
        takes = f"at least one number from --minWorkers up, which is {least} here"
        raise ArgumentsInvalid("--sizes", ",".join(map(str, only)), takes)
    only = tuple(size for size in only if size >= least)
    return (only[0] if only else least) * devices, tuple(size * devices for size in only)
