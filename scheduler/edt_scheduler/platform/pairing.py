"""A home and its database know each other by an id that lies in both.

The home has it in the file ``home-id``, with the database's URL on the second line for people to read; the database has
it in its table ``home``, with the home's path. Whoever starts looks (``check`` before the
schema is migrated, ``pair`` after it), and starts only where the two belong together: else the folders of one would
be taken for leftovers of the other. ``judge`` is the whole rule, and pure. An id stands for one pairing: where two
meet that have none, as in a release before ids or at the first start of all, a new one is made, and the same where an
administrator has two belong together from now on (``adopt``). An id that a restored copy brings back is then refused.

The file is written before the row is committed, so a crash between leaves a home whose id no database has, which is
the case of a home and a new database, and judged as such.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, make_url

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import sweep_drafts, write_whole
from edt_scheduler.errors import HomeForeign, HomeUnusable, Side
from edt_scheduler.home import lost_found
from edt_scheduler.model.jobs import named
from edt_scheduler.settings import Settings
from edt_scheduler.store import home as rows
from edt_scheduler.store import jobs
from edt_scheduler.store.database import Database

ID_FILE = "home-id"
_SECRET_OPTIONS = ("password", "sslpassword")


@dataclass(frozen=True)
class Known:
    """A job as the database knows it."""

    fence: int
    """Attempts so far."""
    deleted: bool


@dataclass(frozen=True)
class Sight:
    """What one start sees of the two. The jobs are looked at only where the database has no id."""

    home_id: str | None
    database_id: str | None
    folders: Mapping[int, int] = field(default_factory=dict)
    """Number of a job that has a folder in the home to its newest attempt there; 0: none has begun."""
    jobs: Mapping[int, Known] = field(default_factory=dict)
    is_new: bool = True
    """The database has never had a user or a job."""
    strangers: Collection[int] = ()
    """Numbers of jobs in whose folder an attempt has begun on a node to which the database never gave it."""


def judge(sight: Sight) -> str | None:
    """Why the two do not belong together; None: they do.

    Without an id in the database their jobs decide: each that has begun in the home must be known, with as many
    attempts at least and each on its nodes, and of those that the database has kept one at least must have its folder.
    A folder in which nothing has begun proves nothing: a submit that crashed leaves one. Two platforms of one machine
    can agree in all of this: what was deleted before they were paired is therefore not removed (``sweeping``).
    """
    if sight.database_id is not None:
        if sight.home_id == sight.database_id:
            return None
        return "the home has no id" if sight.home_id is None else "their ids differ"
    if sight.is_new:
        return f"the database is new and the home holds {_count(sight.folders)}" if sight.folders else None
    begun = {number: fence for number, fence in sight.folders.items() if fence}
    unknown = sorted(begun.keys() - sight.jobs.keys())
    if unknown:
        return f"the database does not know {named(unknown)} of the home"
    ahead = sorted(number for number, fence in begun.items() if fence > sight.jobs[number].fence)
    if ahead:
        return f"the home holds later attempts of {named(ahead)} than the database knows"
    if sight.strangers:
        return f"the home holds attempts of {named(sight.strangers)} on nodes that the database never gave them"
    kept = [number for number, known in sight.jobs.items() if not known.deleted]
    if kept and not sight.folders.keys() & set(kept):
        return f"the home holds no folder of the database's {_count(kept)}"
    return None


def check(tx: Connection, settings: Settings) -> None:
    """Raise HomeForeign where home and database, whose schema may be an older one, do not belong together."""
    sight = _look(tx, settings)
    why = judge(sight)
    if why is not None:
        raise _foreign(tx, settings, sight, why)


def pair(database: Database, settings: Settings, now: float) -> None:
    """See to it that both have the same id, and that no number of a folder is given to a new job.

    Raises HomeForeign where they do not belong together, HomeUnusable where the id cannot be written.
    """
    sweep_drafts(settings.home)
    with database.snapshot() as tx:
        paired = read_id(settings) is not None and read_id(settings) == rows.identity(tx)
        highest = lost_found.highest_number(settings)
        if paired and jobs.newest_number(tx) >= highest:
            return
    with database.transaction() as tx:
        check(tx, settings)
        if rows.identity(tx) is None:
            made = uuid.uuid4().hex
            _write_id(settings, made)
            crash_point(CrashPoint.HOME_ID)
            rows.set_identity(tx, made, str(settings.home), now)
        jobs.skip_numbers(tx, highest)


def adopt(database: Database, settings: Settings, now: float) -> str:
    """Have the two belong together from now on, under a new id, which is the answer.

    The row comes first here: a crash before the file leaves a home that its own database still knows.
    """
    made, highest = uuid.uuid4().hex, lost_found.highest_number(settings)
    with database.transaction() as tx:
        rows.set_identity(tx, made, str(settings.home), now)
        jobs.skip_numbers(tx, highest)
    _write_id(settings, made)
    return made


def belong(tx: Connection, settings: Settings) -> bool:
    """Whether they still do, for whoever is about to act on a folder that the database does not know."""
    return rows.identity(tx) == read_id(settings)


def read_id(settings: Settings) -> str | None:
    """The home's id; None: it has none. Raises HomeUnusable where the file cannot be read."""
    lines = _id_lines(settings)
    return (lines[0].strip() or None) if lines else None


def database_place(settings: Settings) -> str:
    """The database's URL, without its password, which may stand among its options, too."""
    url = make_url(settings.database)
    return url.difference_update_query(_SECRET_OPTIONS).render_as_string(hide_password=True)


def _id_lines(settings: Settings) -> list[str]:
    try:
        return (settings.home / ID_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise HomeUnusable(str(settings.home), f"{ID_FILE} cannot be read ({why or error})") from None


def _write_id(settings: Settings, made: str) -> None:
    try:
        write_whole(settings.home / ID_FILE, f"{made}\n{database_place(settings)}\n")
    except OSError as error:
        raise HomeUnusable(str(settings.home), f"{ID_FILE} cannot be written ({error.strerror or error})") from None


def _look(tx: Connection, settings: Settings) -> Sight:
    # Before the file, which is written first: who pairs them meanwhile has written both.
    database_id = rows.identity(tx)
    home_id = read_id(settings)
    if database_id is not None:
        return Sight(home_id, database_id)
    folders = lost_found.job_folders(settings.jobs)
    begun = {number: {spool.name for spool in lost_found.attempts_begun(folder)} for number, folder in folders.items()}
    named: dict[int, set[str]] = {}
    for number, spool in rows.supervisors_of_any_release(tx):
        named.setdefault(number, set()).add(spool)
    known = {number: Known(fence, deleted) for number, fence, deleted in rows.jobs_of_any_release(tx)}
    return Sight(
        home_id,
        None,
        {number: lost_found.newest_attempt(folder) for number, folder in folders.items()},
        known,
        is_new=not known and not rows.has_users(tx),
        strangers={number for number, spools in begun.items() if spools - named.get(number, set())},
    )


def _foreign(tx: Connection, settings: Settings, sight: Sight, why: str) -> HomeForeign:
    here = Side(str(settings.home), sight.home_id, "".join(_id_lines(settings)[1:2]))
    there = Side(database_place(settings), sight.database_id, rows.place(tx) or "")
    return HomeForeign(here, there, why)


def _count(numbers: Mapping[int, int] | list[int]) -> str:
    return f"{len(numbers)} job{'s' if len(numbers) != 1 else ''}"
