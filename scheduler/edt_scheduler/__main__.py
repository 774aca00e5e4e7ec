"""``python -m edt_scheduler``: the process that decides. Room: scheduler.

A loop on its own monotonic timer, woken by doorbells besides. One of several decides at a time, the others stand
by. SIGTERM ends it between two decisions; a SIGKILL at any instant loses nothing, since what was decided is in
the database and what was not is decided again.
Exit code 2, with one sentence: it cannot start (home, settings, database).
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress

from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew
from edt_scheduler.beat import Beat
from edt_scheduler.ear import Ear
from edt_scheduler.errors import AlreadyLeading, HomeUnusable, Unavailable
from edt_scheduler.house import House, open_house
from edt_scheduler.leader import lead
from edt_scheduler.loop import Loop
from edt_scheduler.settings import Settings, complaint

log = logging.getLogger("edt.scheduler")

STAND_BY_SECONDS = 1.0
"""So often, or once a tick, one that stands by tries to lead. What it hears meanwhile is not its to act upon: whoever
begins to lead looks at everything."""


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for library in ("alembic", "celery"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        house = open_house(Settings())
    except ValidationError as error:
        return _refuse(complaint(error))
    except (HomeUnusable, DatabaseTooNew, Unavailable) as error:
        return _refuse(str(error))
    except (ArgumentError, DBAPIError) as error:
        return _refuse(f"the database cannot be opened: {str(error).splitlines()[0]}")
    ear = Ear(house.settings.broker_url)
    ear.open()
    house.doorbells.start()
    try:
        _stand_by(house, ear)
    finally:
        ear.close()
        house.close()
    log.info("ended")
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 2


def _stand_by(house: House, ear: Ear) -> None:
    """Decide, or wait until the one who decides is gone, or the database is back."""
    told = ""
    while not ear.stopped:
        try:
            with lead(house.settings) as leadership, Beat(house):
                log.info("deciding, every %g s and when rung", house.settings.tick_seconds)
                told = ""
                loop = Loop(house, time.monotonic)
                while not ear.stopped and leadership.holds():
                    if loop.once():
                        _show_life(house)
                    ear.wait(house.settings.tick_seconds)
                if not ear.stopped:
                    log.warning("the session that held the lock is lost: no longer deciding")
        except (AlreadyLeading, Unavailable, OSError) as error:  # the last: a full disk, say
            if isinstance(error, AlreadyLeading):
                _show_life(house)
            if told != str(error):
                log.info("standing by: %s", error)
            told = str(error)
        except DBAPIError:
            log.exception("the database could not be asked; trying again")
        ear.rest(min(house.settings.tick_seconds, STAND_BY_SECONDS))


def _show_life(house: House) -> None:
    if house.settings.alive_file is not None:
        with suppress(OSError):  # a full disk: whoever looks at the file sees that it is old
            house.settings.alive_file.touch()


if __name__ == "__main__":
    sys.exit(main())
