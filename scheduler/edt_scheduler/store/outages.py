"""What an error of the database says about the state of the database. Pure.

Three cases are distinguished. A fault in our code is raised as it is. A database that cannot serve now (unreachable,
locked, full, shutting down) has written nothing. After a connection lost during COMMIT the outcome is unknown. A server
that answers a COMMIT with an error has not committed, unless the error is the server's own end.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from edt_scheduler.errors import DatabaseUnavailable, OutcomeUnknown, Unavailable

_SQLITE_AWAY = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_FULL: "has no room left on its disk",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "may only be read",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process",
    sqlite3.SQLITE_NOMEM: "has no memory left",
}
_SQLITE_SAYS_NO = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT})
"""A COMMIT that ends with one of these codes has not committed."""

_POSTGRESQL_AWAY = {
    "25006": "may only be read",  # a server that became a standby
    "25P03": "took this session for dead",  # idle in a transaction for too long: stopped or swapped out
    "53100": "has no room left on its disk",
    "53300": "has no connection left",
    "55P03": "is locked by another process",
}
_POSTGRESQL_SAYS_NO = ("40", "23")
"""Classes of SQLSTATE with which the server refuses a COMMIT: rolled back, or a constraint."""
_NO_CONNECTION_LEFT = "53300"
"""The only one of these states that may be over after a second."""


def outage(error: DBAPIError | PoolTimeout) -> DatabaseUnavailable | None:
    """The error as the rest of the platform sees it, if the database cannot serve; None: the error is a fault in our
    code.
    """
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable("is asked too much at once", passing=False)
    if isinstance(error.orig, sqlite3.Error):
        how = _SQLITE_AWAY.get(_sqlite_code(error.orig))
        return DatabaseUnavailable(how, passing=False) if how is not None else None
    state = _sqlstate(error)
    if state in _POSTGRESQL_AWAY:
        return DatabaseUnavailable(_POSTGRESQL_AWAY[state], passing=state == _NO_CONNECTION_LEFT)
    if error.connection_invalidated or (isinstance(error, OperationalError | InterfaceError) and not _ours(error)):
        return DatabaseUnavailable("does not answer", passing=True)
    return None


def _ours(error: DBAPIError) -> bool:
    """Whether the driver refused the statement on a working connection, so that the server never saw it.

    An example is a statement with too many values. If no connection could be made, there is no statement yet.
    """
    return error.statement is not None and not _sqlstate(error)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process or thread holds SQLite's lock and will release it."""
    return _sqlite_code(error) == sqlite3.SQLITE_BUSY


def after_commit(error: DBAPIError) -> Unavailable | None:
    """``outage`` for an error that COMMIT itself raised."""
    if isinstance(error.orig, sqlite3.Error):
        refused = _sqlite_code(error.orig) in _SQLITE_SAYS_NO
    else:
        refused = _sqlstate(error).startswith(_POSTGRESQL_SAYS_NO)
    return outage(error) if refused else OutcomeUnknown()


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code. The upper bytes hold details that are not needed. For errors of the driver itself: 0."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
