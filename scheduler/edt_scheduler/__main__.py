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

from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew
from edt_scheduler.ear import Ear
from edt_scheduler.errors import AlreadyLeading, HomeUnusable
from edt_scheduler.house import House, open_house
from edt_scheduler.leader import lead
from edt_scheduler.loop import Loop
from edt_scheduler.operations.sweeping import sweep_leftovers
from edt_scheduler.settings import Settings

log = logging.getLogger("edt.scheduler")


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        house = open_house(Settings())
    except ValidationError as error:
        first = error.errors()[0]
        return _refuse(f"EDT_{str(first['loc'][0]).upper()}: {first['msg']}")
    except (HomeUnusable, DatabaseTooNew) as error:
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
    """Decide, or wait until the one who decides is gone."""
    told = False
    while not ear.stopped:
        try:
            with lead(house.settings) as leadership:
                log.info("deciding, every %g s and when rung", house.settings.tick_seconds)
                sweep_leftovers(house)
                loop = Loop(house, time.monotonic)
                while not ear.stopped and leadership.holds():
                    loop.once()
                    ear.wait(house.settings.tick_seconds)
        except AlreadyLeading as error:
            if not told:
                log.info("standing by: %s", error)
            told = True
        except DBAPIError:
            log.exception("the database could not be asked; trying again")
        ear.wait(house.settings.tick_seconds)


if __name__ == "__main__":
    sys.exit(main())
