"""`edt explain`, `edt whatif` and `edt submit --dry-run`, against a real API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.typed import Done, edt


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """One with a node of two slots, both of which a gang of ana's holds. One of bob's waits."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            patch.delenv(name)
        with served(tmp_path_factory.mktemp("home")) as api:
            nodes: list[Puppet] = []
            nodes.append(Puppet(api.platform, "n1", 2, peers=nodes).join())
            for user in ("ana", "bob"):
                api.submit(user, "--exec-start distPyTorch --numWorker 2 --model-main main.py")
                for _ in range(3):
                    look(api.platform)
                    nodes[0].obey()
            yield api


def typed(api: ServedApi, folder: Path, *words: str, user: str = "admin") -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    token = tokens.issue(api.platform, accounts.user(api.platform, user), 600)
    return edt(list(words), {**kept, "EDT_API": api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}, folder)


def test_a_job_that_waits_is_explained_in_tables_and_in_json(api: ServedApi, tmp_path: Path) -> None:
    done = typed(api, tmp_path, "explain", "edt-2")
    assert done.returncode == 0, done.stderr
    for part in ("1 of 1 that wait", "Blocked by", "edt-1", "n1", "full", "It starts now if", "edt stop edt-1"):
        assert part in done.stdout, part
    for form in ("--json",), ("-o", "json"):
        found = json.loads(typed(api, tmp_path, "explain", "edt-2", *form).stdout)
        assert (found["phase"], found["waits"]["rank"]) == ("waiting", 1)


def test_its_owner_is_told_of_others_only_how_many_they_are(api: ServedApi, tmp_path: Path) -> None:
    done = typed(api, tmp_path, "explain", "edt-2", user="bob")
    assert "1 job of others" in done.stdout
    assert "edt-1" not in done.stdout


def test_a_job_that_runs_is_told_why_it_has_so_many(api: ServedApi, tmp_path: Path) -> None:
    done = typed(api, tmp_path, "explain", "edt-1", user="ana")
    assert "a gang is never resized" in done.stdout
    assert typed(api, tmp_path, "explain", "edt-1", user="bob").returncode == 1


def test_what_if_names_who_starts_and_what_is_in_use(api: ServedApi, tmp_path: Path) -> None:
    done = typed(api, tmp_path, "whatif", "--more", "2")
    assert done.returncode == 0, done.stderr
    assert "If there is a further node with 2 slots" in done.stdout
    assert "0 → 2" in done.stdout
    assert "4 of 4" in done.stdout
    found = json.loads(typed(api, tmp_path, "whatif", "--stop", "edt-1", "--json").stdout)
    assert [(each["job"], each["effect"]) for each in found["jobs"]] == [("edt-2", "starts")]
    both = typed(api, tmp_path, "whatif", "--node-less", "n1", "--queue", "/a", "--policy", "fifo", "--limit", "none")
    assert "node n1 is gone and queue /a has no limit and shares by fifo" in both.stdout
    new = json.loads(typed(api, tmp_path, "whatif", "--new", "1", "--gang", "--more", "3", "--json").stdout)
    assert {each["job"]: each["effect"] for each in new["jobs"]} == {"edt-2": "starts", "new": "starts"}
    changed = typed(api, tmp_path, "whatif", "--job", "edt-2", "--max", "1", "--priority", "2")
    assert "edt-2 has priority 2 and takes 1 slot at most" in changed.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--more 8"),
        (("--max", "2"), "--job"),
        (("--quota", "2"), "--queue"),
        (("--limit", "x", "--queue", "/a"), "whole number"),
        (("--job", "edt-2", "--new", "2"), "do not go together"),
        (("--gang",), "--new"),
        (("--node-less", "n9"), "n9"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    api: ServedApi, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    done = typed(api, tmp_path, "whatif", *words)
    assert done.returncode != 0
    assert named in done.stderr


def test_a_dry_run_says_when_a_job_would_start_and_submits_nothing(api: ServedApi, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('hello')\n")
    words = ("submit", "main.py", "-n", "2", "--framework", "distPyTorch", "--dry-run")
    before = json.loads(typed(api, tmp_path, "ls", "-o", "json").stdout)
    done = typed(api, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    for part in ("not now", "2 of 2 that wait", "Nothing was submitted."):
        assert part in done.stdout, part
    found = json.loads(typed(api, tmp_path, *words, "-o", "json").stdout)
    assert (found["kind"], found["starts"], found["explained"]["job"]) == ("gang", False, "new")
    assert len(json.loads(typed(api, tmp_path, "ls", "-o", "json").stdout)) == len(before)
    assert typed(api, tmp_path, *words, "--follow").returncode != 0
