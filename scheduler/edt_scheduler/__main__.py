"""``python -m edt_scheduler``: the process that decides.

A loop on its own monotonic timer, and when a notification comes. One of several decides at a time, the others stand
by. SIGTERM ends it between two decisions; a SIGKILL at any instant loses nothing, since what was decided is in
the database and what was not is decided again.
Exit code 2, with one sentence: it cannot start (home, settings, database).
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
"""A scheduler that stands by tries to lead so often, or every EDT_TICK_SECONDS where that is shorter. It ignores the
notifications that come meanwhile: whoever begins to lead looks at everything."""


def main() -> int:
    """Run until SIGTERM or SIGINT."""
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
    """Decide, or wait until the one who decides is gone, or the database is back."""
    shown = ""
    while not listener.stopped:
        try:
            with lead(platform.settings) as leads, Beat(platform):
                log.info("deciding, every %g s and when notified", platform.settings.tick_seconds)
                shown = ""
                loop = Loop(platform, time.monotonic)
                while not listener.stopped and leads():
                    if loop.once():
                        _show_life(platform)
                    listener.wait(platform.settings.tick_seconds)
                if not listener.stopped:
                    log.warning("the session that held the lock is lost: no longer deciding")
        except (AlreadyLeading, Unavailable, OSError) as error:  # the last: a full disk, say
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
        with suppress(OSError):  # a full disk: whoever looks at the file sees that it is old
            platform.settings.alive_file.touch()


if __name__ == "__main__":
    sys.exit(main())
