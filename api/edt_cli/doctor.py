"""``edt doctor``: shows the state of this machine's EDT_HOME and the content of its lost+found, and repairs both.

The scheduler's part (``python -m edt_scheduler.doctor``) looks and changes. This module starts it with this home and
this environment, asks the API, asks the user, and prints the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from edt_cli import output
from edt_cli.errors import CannotStart, CliError
from edt_cli.login import accepted_by, api_address
from edt_cli.output import Format, FormatOption
from edt_cli.trust import home_address
from edt_cli.up.home import HomeOption, home_folder, remembered_port

PYTHON = (sys.executable, "-P", "-m", "edt_scheduler.doctor")
_API_SECONDS = 5.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def doctor(
    context: typer.Context,
    home: HomeOption = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Have home and database belong together from now on; deletes nothing.")
    ] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="With --adopt: the database is a copy of this home's own.")
    ] = False,
    empty: Annotated[bool, typer.Option("--empty-lost-found", help="Delete for good what lies in lost+found.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="With --empty-lost-found: this entry; repeatable.")] = None,
    seal: Annotated[
        bool, typer.Option("--seal", help="Seal what jobs were given as their environment with the newest secret key.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Look after the platform of this machine: home, database, secret key, API, broker, and lost+found.

    lost+found holds the folders of jobs that the database does not know. Exit status 1: something is the matter.
    """
    if adopt + empty + seal > 1:
        raise CannotStart("--adopt, --seal and --empty-lost-found are different things: type one after the other")
    if (keep_jobs and not adopt) or (only and not empty):
        raise CannotStart("--keep-jobs goes with --adopt, --only with --empty-lost-found")
    place = home_folder(home)
    if adopt:
        _adopt(place, _look(place), keep_jobs=keep_jobs, yes=yes)
        return
    if seal:
        typer.echo(_run(place, "--seal").strip())
        return
    seen = _look(place)
    if empty:
        _empty(place, seen, only or [], yes=yes)
        return
    address = _address(context.obj, place)
    api = _ask(address, place)
    if form is Format.JSON:
        typer.echo(json.dumps({**seen, "api": {"url": address, **api}}, indent=2))
    else:
        _show(seen, address, api)
    sound = seen["problem"] is None and seen["secret_key"]["problem"] is None
    raise typer.Exit(0 if sound and api["ready"] else 1)


def _address(given: str | None, place: Path) -> str:
    """Return the address of this home's API, at the port that `edt up` stored; otherwise the address of all
    commands.
    """
    of_home = home_address(place) if remembered_port(place) and not os.environ.get("EDT_API") else None
    return api_address(given or of_home)


def _adopt(place: Path, seen: dict[str, Any], *, keep_jobs: bool, yes: bool) -> None:
    here = home_address(place)
    if _ask(here, place)["ready"]:  # its database may differ from the one that this shell's environment names
        raise CliError(f"an API serves at {here}: stop the platform before you change what belongs to it")
    what = "Folders of jobs that the database does not know go" if keep_jobs else "All job folders in it go"
    typer.echo(f"{place} and {seen['database']} will belong together.", err=True)
    typer.echo(f"{what} to lost+found when nothing of them runs any more; nothing is deleted.", err=True)
    if not keep_jobs:
        typer.echo("If the database is an older copy of this home's own, say --keep-jobs.", err=True)
    _sure("Go on?", yes)
    typer.echo(_run(place, "--adopt", *(["--keep-jobs"] if keep_jobs else [])).strip())


def _empty(place: Path, seen: dict[str, Any], only: Sequence[str], *, yes: bool) -> None:
    names = [entry["name"] for entry in seen["lost_found"]]
    missing = sorted(set(only) - set(names))
    if missing:
        raise CliError(f"lost+found has no {missing[0]}: `edt doctor` lists what there is")
    wanted = list(only) or names
    if not wanted:
        typer.echo("lost+found is empty")
        return
    _list([entry for entry in seen["lost_found"] if entry["name"] in wanted])
    _sure(f"Delete {_folders(len(wanted))} for good?", yes)
    typer.echo(_run(place, "--remove", *wanted).strip())


def _sure(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CannotStart("nobody is there to be asked: say --yes")
    typer.confirm(question, abort=True)


def _look(place: Path) -> dict[str, Any]:
    return dict(json.loads(_run(place)))


def _run(place: Path, *words: str) -> str:
    """Run the scheduler's part and return its output.

    Raises:
        CliError: the look failed; the message is the part's last line.
        typer.Exit: a change failed; the part has printed its own sentence.
    """
    done = subprocess.run(
        [*PYTHON, *words],
        env={**os.environ, "EDT_HOME": str(place)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if not words else None,
        text=True,
        check=False,
    )
    if done.returncode == 0 or (not words and done.stdout):
        return done.stdout
    if words:  # the process has printed its own sentence
        typer.echo(done.stdout, nl=False)
        raise typer.Exit(done.returncode)
    lines = done.stderr.strip().splitlines()
    if lines and "No module named" in lines[-1]:
        raise CannotStart("edt doctor needs more than the command line: pip install 'openedt[server]'")
    raise CliError(lines[-1] if lines else f"the home could not be looked at: exit status {done.returncode}")


def _ask(address: str, place: Path) -> dict[str, Any]:
    """Return whether the API is ready, and the states that it reports for its database and its broker."""
    try:
        verify = accepted_by(address, place)
        answer = httpx.get(f"{address}/readyz", timeout=_API_SECONDS, trust_env=False, verify=verify)
        state = answer.json()
        # Only a request from the server's own machine gets these states.
        parts = {name: str(state[name]) for name in ("database", "broker") if name in state}
        return {"ready": bool(state["ready"]), **parts}
    except (httpx.HTTPError, CliError, ValueError, KeyError, TypeError) as error:
        return {"ready": False, "error": str(error) or type(error).__name__}


def _show(seen: dict[str, Any], address: str, api: dict[str, Any]) -> None:
    lines = [
        ("home", f"{seen['home']}  {_id(seen['home_id'])}"),
        ("database", f"{seen['database']}  {_id(seen['database_id'])}"),
        ("", seen["problem"] or "they belong together"),
        ("secret key", seen["secret_key"]["file"]),
        ("", _secret_key(seen["secret_key"])),
        ("API", f"{address}  {_api(api)}"),
        ("broker", api.get("broker", "unknown")),
    ]
    if seen["unknown"]:
        names = ", ".join(seen["unknown"][:5])
        lines.append(("jobs", f"{_folders(len(seen['unknown']))} without a row go to lost+found in time: {names}"))
    lines.append(("lost+found", _folders(len(seen["lost_found"]))))
    for name, value in lines:
        typer.echo(f"{name:<11} {value}")
    if seen["lost_found"]:
        typer.echo()
        _list(seen["lost_found"])


def _secret_key(key: dict[str, Any]) -> str:
    """Return whether the secret key fits the database, and what the user should do."""
    if key["problem"]:
        return str(key["problem"])
    if not key["ids"]:
        return "the first start makes it"
    newest = f"newest key {key['ids'][0]}"
    if key["sealed"] is None:
        return newest
    state = f"{newest}; it fits the database, {key['sealed']} environment{'s' if key['sealed'] != 1 else ''} sealed"
    if key["older"]:
        return f"{state}, {key['older']} of them not with the newest: `edt doctor --seal`"
    return f"{state}; {', '.join(key['unneeded'])} may be taken out" if key["unneeded"] else state


def _list(entries: Sequence[dict[str, Any]]) -> None:
    rows = [(each["name"], _size(each["bytes"]), output.ago(each["moved_at"]), each["why"]) for each in entries]
    output.table(("NAME", "SIZE", "AGE", "WHAT"), rows, "")


def _api(api: dict[str, Any]) -> str:
    if api["ready"]:
        return "ready"
    if "error" in api:
        return f"no answer ({api['error']})"
    return f"not ready: database {api['database']}" if "database" in api else "not ready; its log says why"


def _id(value: str | None) -> str:
    return f"id {value}" if value else "no id"


def _folders(count: int) -> str:
    return f"{count} job folder{'s' if count != 1 else ''}"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
