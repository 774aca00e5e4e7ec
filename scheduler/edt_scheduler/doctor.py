"""``python -m edt_scheduler.doctor``: an administrator's commands for a home and its database.

    python -m edt_scheduler.doctor                       print one JSON object; change and create nothing
    python -m edt_scheduler.doctor --adopt [--keep-jobs] make home and database belong together from now on
    python -m edt_scheduler.doctor --remove NAME …       delete entries of lost+found for good
    python -m edt_scheduler.doctor --seal                seal all environments with the newest key of the file

``edt doctor`` runs these commands, asks before it adopts or deletes, and shows the JSON as a table. If a command cannot
do its work, it prints one sentence and exits with code 2. The commands use the home's folders and the database. The
platform may run meanwhile, except during ``--adopt``.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import make_url

from edt_migrations import DatabaseTooNew, at_head, migrate
from edt_scheduler.decide.leader import lead
from edt_scheduler.errors import AlreadyLeading, HomeUnusable, SecretKeyUnusable, Unavailable
from edt_scheduler.home import lost_found
from edt_scheduler.home.secret_key import KeyFile
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.platform import CANNOT_OPEN, pairing, sealing, why_not_open
from edt_scheduler.settings import Settings
from edt_scheduler.store import environs, home, jobs, reservations
from edt_scheduler.store.database import Database

_LOOK_AGAIN_SECONDS = 1.0


def main(words: list[str] | None = None) -> int:
    """Run one command.

    Args:
        words: the command line without the program's name; None: ``sys.argv``.

    Returns:
        The exit status. 0: done. 1: home and database do not belong together, the database does not answer, or
        ``--seal`` found environments whose key the file does not hold. 2: the command cannot do its work.
    """
    parser = argparse.ArgumentParser(prog="python -m edt_scheduler.doctor", description="Look after a home.")
    parser.add_argument("--adopt", action="store_true", help="have home and database belong together from now on")
    parser.add_argument("--keep-jobs", action="store_true", help="with --adopt: folders of jobs it knows stay")
    parser.add_argument("--remove", nargs="+", metavar="NAME", default=[], help="entries of lost+found to delete")
    parser.add_argument("--seal", action="store_true", help="seal all jobs' environments with the newest secret key")
    given = parser.parse_args(words)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        settings = Settings()
        if given.adopt:
            return _adopt(settings, keep_jobs=given.keep_jobs)
        if given.remove:
            return _remove(settings, given.remove)
        if given.seal:
            return _seal(settings)
        seen = look(settings)
    except AlreadyLeading:
        return _refuse(
            "a scheduler decides for this home or this database: stop the platform before you change what belongs to it"
        )
    except CANNOT_OPEN as error:
        return _refuse(why_not_open(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror or error}")
    json.dump(seen, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0 if seen["problem"] is None else 1


def look(settings: Settings) -> dict[str, object]:
    """Describe the home, the database, whether they belong together, the secret key, unknown folders and lost+found.

    Changes and creates nothing.

    Args:
        settings: the platform's settings.

    Returns:
        A JSON object. ``problem`` is None or a sentence. ``unknown`` lists job folders that no row knows and that are
        not in lost+found.

    Raises:
        HomeUnusable: if the home's id cannot be read.
        OSError: if the home's folders cannot be read.
        sqlalchemy.exc.ArgumentError: if EDT_DATABASE_URL is no database URL.
        sqlalchemy.exc.DBAPIError: if the database cannot be opened.
    """
    seen: dict[str, object] = {
        "home": str(settings.home),
        "home_id": pairing.read_id(settings),
        "database": pairing.database_place(settings),
        "database_id": None,
        "problem": lost_found.shut_to_us(settings),
        "secret_key": _secret_key(settings, None),
        "unknown": [],
        "lost_found": [asdict(entry) for entry in lost_found.entries(settings)],
    }
    if _is_missing(settings):
        seen["problem"] = "there is no database yet: the first start makes one"
        return seen
    folders = lost_found.job_folders(settings.jobs)
    try:
        with closing(Database(settings.database)) as database, database.snapshot() as tx:
            seen["database_id"] = home.identity(tx)
            pairing.check(tx, settings)
            if at_head(settings.database):
                known = jobs.known(tx, folders) | reservations.held(tx)
                seen["unknown"] = [exec_id(number) for number in sorted(folders.keys() - known)]
                seen["secret_key"] = _secret_key(settings, environs.by_key(tx))
    except (HomeUnusable, DatabaseTooNew, Unavailable) as error:
        seen["problem"] = str(error)
    return seen


def _secret_key(settings: Settings, sealed: Mapping[str | None, int] | None) -> dict[str, object]:
    """Where the keys lie, their ids, and which environments of the database they open.

    ``sealed``: key id to the number of environments that it has sealed; None: the database was not asked. In the
    result, ``older`` counts environments that are not sealed with the newest key. ``unneeded`` lists keys with which no
    environment is sealed any more. ``problem`` is None or a sentence.
    """
    file, counts = KeyFile(settings), sealed or {}
    ids: tuple[str, ...] = ()
    problem = None
    try:
        ids = file.known().ids
    except SecretKeyUnusable as error:
        first_start = not counts and settings.secret_key_file is None and not file.path.exists()
        problem = None if first_start else str(error)
    locked = {key: count for key, count in counts.items() if key is not None and key not in ids}
    if locked and ids:
        count = sum(locked.values())
        need = "1 sealed environment needs" if count == 1 else f"{count} sealed environments need"
        problem = (
            f"{need} the key {', '.join(sorted(locked))}, which {file.path} does not hold: add it as a line of its "
            "own, or their jobs do not start"
        )
    return {
        "file": str(file.path),
        "ids": list(ids),
        "sealed": sum(counts.values()) if sealed is not None else None,
        "older": sum(count for key, count in counts.items() if key not in ids[:1] and key not in locked),
        "unneeded": [key for key in ids[1:] if sealed is not None and key not in counts],
        "problem": problem,
    }


def _is_missing(settings: Settings) -> bool:
    """Whether the database is a SQLite file that does not exist. To open the file would create it."""
    url = make_url(settings.database)
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def _adopt(settings: Settings, *, keep_jobs: bool) -> int:
    """Move job folders to lost+found, then give home and database a new id, the same for both.

    ``keep_jobs``: folders of jobs that the database knows stay where they are.

    If this ends in the middle, home and database still do not belong together. The command can then be run again.
    """
    if _is_missing(settings):
        place = pairing.database_place(settings)
        return _refuse(f"there is no database {place}: EDT_DATABASE_URL names another, or start once to make this one")
    settings.home.mkdir(parents=True, exist_ok=True)
    (settings.home / "run").mkdir(exist_ok=True)
    # Meanwhile no scheduler decides for this home or this database.
    with closing(Database(settings.database)) as database, lead(settings, home_alone=True):
        migrate(settings.database)
        with database.snapshot() as tx:
            if home.identity(tx) is not None and pairing.belong(tx, settings):
                sys.stdout.write(f"{settings.home} and its database belong together already\n")
                return 0
            stay = jobs.known(tx, lost_found.job_folders(settings.jobs)) if keep_jobs else set()
        moved = _set_aside(settings, stay)
        made = pairing.adopt(database, settings, time.time())
    where = f"; {lost_found.folders_in_words(moved)} moved to {settings.lost_found}" if moved else ""
    sys.stdout.write(f"{settings.home} and its database belong together from now on, under the id {made}{where}\n")
    return 0


def _set_aside(settings: Settings, stay: set[int]) -> int:
    """Move all job folders but those in ``stay`` to lost+found, each when nothing of it lives; return how many."""
    folders = {number: folder for number, folder in lost_found.job_folders(settings.jobs).items() if number not in stay}
    quiet = lost_found.Quiet(settings, time.monotonic)
    for folder in folders.values():
        lost_found.shut_out(folder)
    left = dict(folders)
    reported = False
    while True:
        for number, folder in list(left.items()):
            if not quiet.alive(folder):
                lost_found.move(settings, folder, "an administrator gave the home another database", time.time())
                del left[number]
        if not left:
            return len(folders)
        if not reported:
            names = ", ".join(map(exec_id, list(left)[:5]))
            sys.stderr.write(
                f"waiting until nothing of {names} lives; {quiet.silent_seconds:g} s where nobody says so\n"
            )
            reported = True
        time.sleep(_LOOK_AGAIN_SECONDS)


def _remove(settings: Settings, names: list[str]) -> int:
    for name in names:
        try:
            lost_found.remove(settings, name)
        except FileNotFoundError:
            return _refuse(f"{settings.lost_found} has no {name}: `edt doctor` lists what there is")
        sys.stdout.write(f"{name} is deleted\n")
    return 0


def _seal(settings: Settings) -> int:
    """Seal all environments with the newest key. The platform may run meanwhile.

    Returns 1 if some environments are sealed with a key that the file does not hold.
    """
    if _is_missing(settings):
        return _refuse(f"there is no database {pairing.database_place(settings)}, and nothing to seal")
    keys = KeyFile(settings).known()
    with closing(Database(settings.database)) as database:
        with database.snapshot() as tx:
            pairing.check(tx, settings)
        if not at_head(settings.database):
            return _refuse("the database is of an earlier release: the next start makes it new and seals what is in it")
        done = sealing.seal_all(database, keys)
        locked = sealing.locked_jobs(database, keys)
    many = f"{done} environment{'' if done == 1 else 's'}"
    sys.stdout.write(f"{many} sealed anew; all that can be opened are sealed with {keys.ids[0]}\n")
    if locked:
        sys.stderr.write(f"{locked}\n")
    elif len(keys.ids) > 1:
        sys.stdout.write(f"{keys.place} needs {', '.join(keys.ids[1:])} no longer\n")
    return 1 if locked else 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
