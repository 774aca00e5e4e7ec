"""``python -m edt_scheduler``: the scheduler's process, which decides what every job holds.

The process runs a loop. Each pass looks at the database and decides, at a tick of the process's own monotonic timer or
when a notification comes. Of several schedulers one decides at a time, and the others stand by. SIGTERM ends the
process between two decisions. A SIGKILL at any time loses nothing: decisions are in the database, and the next
scheduler decides what is left.

If the process cannot start (home, settings, database), it prints one sentence and exits with code 2.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from edt_scheduler.decide.leader import lead
from edt_scheduler.decide.loop import Loop
from edt_scheduler.errors import AlreadyLeading, Unavailable
from edt_scheduler.notify.listener import Listener
from edt_scheduler.periodic.beat import Beat
from edt_scheduler.platform import CANNOT_OPEN, Platform, open_platform, why_not_open
from edt_scheduler.settings import Settings

log = logging.getLogger("edt.scheduler")

STAND_BY_SECONDS = 1.0
"""A scheduler that stands by tries to lead every this many seconds, or every EDT_TICK_SECONDS if that is shorter.

It ignores notifications until then, because it looks at everything when it begins to lead.
"""


def main() -> int:
    """Run until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after a signal, 2 if the process cannot start.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for library in ("alembic", "celery"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        platform = open_platform(Settings())
    except CANNOT_OPEN as error:
        return _refuse(why_not_open(error))
    listener = Listener(platform.settings.broker_url)
    listener.open()
    platform.notifier.start()
    try:
        _stand_by(platform, listener)
    finally:
        listener.close()
        platform.close()
    log.info("ended")
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 2


def _stand_by(platform: Platform, listener: Listener) -> None:
    """Lead and decide; while another scheduler leads or the database does not answer, wait and try again."""
    shown = ""
    while not listener.stopped:
        try:
            with lead(platform.settings) as leads, Beat(platform):
                log.info("deciding, every %g s and when notified", platform.settings.tick_seconds)
                shown = ""
                loop = Loop(platform, time.monotonic)
                with loop.silence.observed():
                    while not listener.stopped and leads():
                        if loop.once():
                            _show_life(platform)
                        listener.wait(platform.settings.tick_seconds)
                if not listener.stopped:
                    log.warning("the session that held the lock is lost: no longer deciding")
        except (AlreadyLeading, Unavailable, OSError) as error:  # an OSError comes from a full disk, for example
            if isinstance(error, AlreadyLeading):
                _show_life(platform)
            if shown != str(error):
                log.info("standing by: %s", error)
            shown = str(error)
        except DBAPIError:
            log.exception("the database could not be asked; trying again")
        listener.rest(min(platform.settings.tick_seconds, STAND_BY_SECONDS))


def _show_life(platform: Platform) -> None:
    if platform.settings.alive_file is not None:
        with suppress(OSError):  # on a full disk the old time of the file shows that something is wrong
            platform.settings.alive_file.touch()


if __name__ == "__main__":
    sys.exit(main())
