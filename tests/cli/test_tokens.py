"""`edt tokens`: make an API token, use it, list it, revoke it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_scheduler.operations import accounts
from support.credentials import PASSWORD
from support.served_api import ServedApi, served
from support.typed import Done, edt


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as opened:
        yield opened


class Terminal:
    """`edt` as somebody at a terminal has it, signed in as ``user``."""

    def __init__(self, api: ServedApi, folder: Path, user: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
        token = tokens.issue(api.platform, accounts.user(api.platform, user), 600)
        self.environ = {**kept, "EDT_API": api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}

    def run(self, *words: str, **environ: str) -> Done:
        return edt(list(words), {**self.environ, **environ}, self.folder)


@pytest.fixture
def ana(api: ServedApi, tmp_path: Path) -> Terminal:
    return Terminal(api, tmp_path, "ana")


def test_a_token_is_printed_alone_works_is_listed_and_revoked(ana: Terminal) -> None:
    made = ana.run("tokens", "create", "nightly", "--scope", "submit", "--days", "7")
    token = made.stdout.strip()
    assert made.returncode == 0 and token.startswith("edt_pat_") and made.stdout == f"{token}\n"
    assert "scope submit" in made.stderr and token not in made.stderr
    number = made.stderr.split()[1]

    (ana.folder / "main.py").write_text("print('hello')\n")
    assert ana.run("submit", "main.py", EDT_TOKEN=token).returncode == 0
    refused = ana.run("tokens", EDT_TOKEN=token)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "edt: an API token does not open this: sign in with a name and a password\n"

    listed = ana.run("tokens", "list").stdout
    assert token not in listed
    row = next(line.split() for line in listed.splitlines() if line.startswith(number))
    assert row[:3] == [number, "nightly", "submit"] and row[4] == "6d"

    assert ana.run("tokens", "revoke", number).stdout == f"token {number} is revoked\n"
    assert ana.run("ls", EDT_TOKEN=token).returncode == 1
    assert ana.run("tokens", "revoke", number).stderr == f"edt: no API token {number}: list yours with `edt tokens`\n"


def test_programs_get_json(ana: Terminal) -> None:
    made = json.loads(ana.run("tokens", "create", "wall", "--days", "0", "-o", "json").stdout)
    assert (made["scopes"], made["expires_at"], made["user"]) == (["read"], None, "ana")
    listed = {each["id"]: each for each in json.loads(ana.run("tokens", "list", "-o", "json").stdout)}
    assert listed[made["id"]] == {name: value for name, value in made.items() if name != "token"}
    row = next(line for line in ana.run("tokens").stdout.splitlines() if line.startswith(str(made["id"])))
    assert row.split()[-2:] == ["ever", "never"]


def test_an_admin_lists_and_revokes_another_users(api: ServedApi, ana: Terminal, tmp_path: Path) -> None:
    number = json.loads(ana.run("tokens", "create", "ci", "-o", "json").stdout)["id"]
    admin = Terminal(api, tmp_path, "admin")
    listed = json.loads(admin.run("tokens", "list", "--user", "ana", "-o", "json").stdout)
    assert number in {each["id"] for each in listed}
    assert admin.run("tokens", "revoke", str(number)).returncode == 0
    assert ana.run("tokens", "list", "--user", "admin").returncode == 1


@pytest.mark.parametrize(
    "words",
    [["create", "x" * 65], ["create", "ci", "--days", "367"], ["create", "ci", "--scope", "root"], ["revoke", "x"]],
    ids=" ".join,
)
def test_what_cannot_be_is_wrong_use(ana: Terminal, words: list[str]) -> None:
    assert ana.run("tokens", *words).returncode == 2


def test_an_admin_adds_a_viewer_who_may_not_submit(api: ServedApi, tmp_path: Path) -> None:
    admin = Terminal(api, tmp_path, "admin")
    api.client("admin").post(
        "/api/v1/users", json={"name": "vera", "password": PASSWORD, "role": "viewer"}
    ).raise_for_status()
    assert "viewer" in admin.run("users", "add", "--help").stdout
    assert ["vera", "viewer"] in [line.split()[:2] for line in admin.run("users").stdout.splitlines()]
    (tmp_path / "main.py").write_text("print('hello')\n")
    refused = Terminal(api, tmp_path, "vera").run("submit", "main.py")
    assert refused.returncode == 1
    assert refused.stderr == "edt: the role viewer reads everything and changes nothing\n"
