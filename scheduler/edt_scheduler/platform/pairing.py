"""Checks that a home and a database belong together: the same id is stored in both.

The home keeps the id in the file ``home-id``. The second line of this file holds the database's URL, for people to
read. The database keeps the id in its table ``home``, together with the home's path. Every process that starts checks
both: ``check`` before the schema is migrated, ``pair`` after it. The process starts only if both belong together.
Otherwise the platform would take the job folders of one home for leftovers of another.

``judge`` is the whole rule and is pure. An id stands for one pairing. A new id is made in two cases: when the database
has none (at the very first start, or after a release that had no ids), and when an administrator pairs the two
(``adopt``). A restored copy that brings an older id back is therefore refused.

The file is written before the row is committed. A crash between the two leaves a home with an id that no database has.
``judge`` treats this like a home that meets a new database.
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
    """What the database knows about a job."""

    fence: int
    """Number of attempts so far."""
    deleted: bool


@dataclass(frozen=True)
class Sight:
    """What a starting process sees of the home and the database. Jobs are read only if the database has no id."""

    home_id: str | None
    database_id: str | None
    folders: Mapping[int, int] = field(default_factory=dict)
    """Number of each job that has a folder in the home, mapped to its newest attempt there; 0: no attempt has begun."""
    jobs: Mapping[int, Known] = field(default_factory=dict)
    is_new: bool = True
    """Whether the database has never had a user or a job."""
    strangers: Collection[int] = ()
    """Numbers of jobs with a folder in which an attempt has begun on a node that the database never gave to the job."""


def judge(sight: Sight) -> str | None:
    """Why the home and the database do not belong together; None: they do.

    If the database has no id, the jobs decide:

    * The database must know each job that has begun in the home, with at least as many attempts, and each attempt on
      nodes that the database gave to the job.
    * At least one of the jobs that the database has not deleted must have its folder in the home.

    A folder in which no attempt has begun proves nothing, because a submit that crashed leaves such a folder. Two
    platforms on one machine can pass all these checks by chance. Therefore ``sweeping`` does not remove folders of jobs
    that were deleted before the pairing.
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
    """Check that the home and the database belong together. The database's schema may be an older one.

    Raises:
        HomeForeign: They do not belong together.
        HomeUnusable: The file ``home-id`` cannot be read.
    """
    sight = _look(tx, settings)
    why = judge(sight)
    if why is not None:
        raise _foreign(tx, settings, sight, why)


def pair(database: Database, settings: Settings, now: float) -> None:
    """Make sure that the home and the database have the same id, and that no new job gets the number of an existing
    folder.

    Raises:
        HomeForeign: They do not belong together.
        HomeUnusable: The file ``home-id`` cannot be read or written.
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
    """Pair the home and the database under a new id, and return this id.

    Here the row is written first. A crash before the file is written leaves a home that its own database still knows.
    """
    made, highest = uuid.uuid4().hex, lost_found.highest_number(settings)
    with database.transaction() as tx:
        rows.set_identity(tx, made, str(settings.home), now)
        jobs.skip_numbers(tx, highest)
    _write_id(settings, made)
    return made


def belong(tx: Connection, settings: Settings) -> bool:
    """Whether the two still belong together. Call this before you act on a folder that the database does not know."""
    return rows.identity(tx) == read_id(settings)


def read_id(settings: Settings) -> str | None:
    """The home's id; None: the home has none.

    Raises:
        HomeUnusable: The file cannot be read.
    """
    lines = _id_lines(settings)
    return (lines[0].strip() or None) if lines else None


def database_place(settings: Settings) -> str:
    """The database's URL without its password, which may also be among the URL's options."""
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
    # Read the row before the file. Pairing writes the file first, so if the row is there, the file is there too.
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
