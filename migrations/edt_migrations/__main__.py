"""``python -m edt_migrations [URL]``: migrate, or print one sentence why not (exit code 2).

Without a URL, the EDT_ variables name the platform's database, so that no password stands on a command line. The
command refuses a database that does not belong to EDT_HOME, as every start of the platform does.
"""

from __future__ import annotations

import sys

from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew, migrate


def main(arguments: list[str]) -> int:
    """Migrate the database.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The exit status. 0: the database has the newest schema. 2: it could not be migrated.
    """
    if len(arguments) > 1:
        sys.stderr.write("usage: python -m edt_migrations [DATABASE_URL]\n")
        return 2
    try:
        if arguments:
            migrate(arguments[0])
        else:
            return _platforms()
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        sys.stderr.write(f"EDT_{str(first['loc'][0]).upper()}: {first['msg']}\n")
        return 2
    except DatabaseTooNew as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (ArgumentError, DBAPIError) as error:
        sys.stderr.write(f"the database cannot be opened: {str(error).splitlines()[0]}\n")
        return 2
    return 0


def _platforms() -> int:
    # Imported only here, because edt_scheduler itself imports edt_migrations.
    from edt_scheduler.errors import HomeUnusable, Unavailable
    from edt_scheduler.platform import prepare
    from edt_scheduler.settings import Settings

    try:
        prepare(Settings())
    except (HomeUnusable, Unavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
