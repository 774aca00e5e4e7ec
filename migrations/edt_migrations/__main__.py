"""``python -m edt_migrations URL``: migrate, or say in one sentence why not (exit code 2). Room: migrations."""

from __future__ import annotations

import sys

from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew, migrate


def main(arguments: list[str]) -> int:
    """0: the database has the newest schema."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m edt_migrations DATABASE_URL\n")
        return 2
    try:
        migrate(arguments[0])
    except DatabaseTooNew as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (ArgumentError, DBAPIError) as error:
        sys.stderr.write(f"the database cannot be opened: {str(error).splitlines()[0]}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
