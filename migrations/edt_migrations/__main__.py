"""``python -m edt_migrations [--look] [--wait SECONDS] [URL]``: migrate, or print one sentence why not (exit code 2).

Without a URL, the EDT_ variables name the platform's database, so that no password stands on a command line. The
command refuses a database that does not belong to EDT_HOME, as every start of the platform does.

With ``--look`` nothing is migrated: the exit code says whether the database has the newest schema. With ``--wait``
there are further tries, while the database does not answer or, with ``--look``, until somebody else has migrated it.
"""

from __future__ import annotations

import argparse
import sys
import time

from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew, at_head, migrate

_RETRY_SECONDS = 1.0


class _NotNow(Exception):
    """It cannot be done now, and perhaps later. The message is a sentence."""


def main(arguments: list[str]) -> int:
    """Migrate the database.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The exit status. 0: the database has the newest schema. 2: it has not.
    """
    parser = argparse.ArgumentParser(prog="python -m edt_migrations", description="Migrate the database.")
    parser.add_argument("url", nargs="?", metavar="URL", help="default: the platform's database, by EDT_ variables")
    parser.add_argument(
        "--look", action="store_true", help="migrate nothing; only say whether the schema is the newest"
    )
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="how long to try again; default 0")
    given = parser.parse_args(arguments)
    until, said = time.monotonic() + given.wait, ""
    while True:
        try:
            _look(given.url) if given.look else _migrate(given.url)
        except _NotNow as error:
            if str(error) != said:
                said = str(error)
                sys.stderr.write(f"{said}\n")
            if time.monotonic() >= until:
                return 2
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            return _refuse(f"EDT_{str(first['loc'][0]).upper()}: {first['msg']}")
        except DatabaseTooNew as error:
            return _refuse(str(error))
        except ArgumentError as error:
            return _refuse(f"the database cannot be opened: {str(error).splitlines()[0]}")
        else:
            return 0
        time.sleep(_RETRY_SECONDS)


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 2


def _look(url: str | None) -> None:
    from edt_scheduler.settings import Settings

    try:
        newest = at_head(url or Settings().database)
    except DBAPIError as error:
        raise _NotNow(f"the database cannot be opened: {str(error).splitlines()[0]}") from None
    if not newest:
        raise _NotNow("the database does not have the newest schema: python -m edt_migrations gives it that")


def _migrate(url: str | None) -> None:
    # Imported only here, because edt_scheduler itself imports edt_migrations.
    from edt_scheduler.errors import HomeUnusable, Unavailable
    from edt_scheduler.platform import prepare
    from edt_scheduler.settings import Settings

    try:
        if url is None:
            prepare(Settings())
        else:
            migrate(url)
    except (HomeUnusable, Unavailable) as error:
        raise _NotNow(str(error)) from None
    except DBAPIError as error:
        raise _NotNow(f"the database cannot be opened: {str(error).splitlines()[0]}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
