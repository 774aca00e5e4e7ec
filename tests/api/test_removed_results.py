"""A job whose files were removed because of their age: what its user is told, by HTTP and in the terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_scheduler.operations import accounts
from support.removed import job_without_files
from support.served_api import EXECS, ServedApi
from support.typed import edt


@pytest.fixture(scope="module")
def removed(api: ServedApi) -> tuple[str, str]:
    return job_without_files(api)


@pytest.mark.parametrize("path", ["result", "logs", "log?stream=out"])
def test_what_was_removed_is_gone_in_a_sentence_that_says_when_and_why(
    api: ServedApi, removed: tuple[str, str], path: str
) -> None:
    job, sentence = removed
    answer = api.client("ana").get(f"/api/v1/jobs/{job}/{path}")
    assert answer.status_code == 410
    body = answer.json()
    assert (body["code"], body["detail"]) == ("results-removed", sentence)


@pytest.mark.parametrize("path", ["result", "log", "log?logType=errlog"])
def test_clients_of_wmla_are_told_the_same_as_text(api: ServedApi, removed: tuple[str, str], path: str) -> None:
    job, sentence = removed
    answer = api.client("ana").get(f"{EXECS}/{job}/{path}")
    assert answer.status_code == 410 and answer.text == f"Error 410: {sentence}\n"


def test_the_job_itself_says_it_and_to_others_nothing_is_said(api: ServedApi, removed: tuple[str, str]) -> None:
    job, sentence = removed
    assert api.client("ana").get(f"/api/v1/jobs/{job}").json()["results_removed"] == sentence
    assert api.client("bob").get(f"/api/v1/jobs/{job}/result").status_code == 404
    kept = api.submit().exec_id
    assert api.client("ana").get(f"/api/v1/jobs/{kept}").json()["results_removed"] is None


def test_the_terminal_says_it(api: ServedApi, removed: tuple[str, str], tmp_path: Path) -> None:
    job, sentence = removed
    token = tokens.issue(api.platform, accounts.user(api.platform, "ana"), 60)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    environ = {**kept, "EDT_API": api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}
    shown = edt(["get", job], environ, tmp_path)
    assert shown.returncode == 0 and sentence in " ".join(shown.stdout.split())
    for words in (["logs", job], ["logs", job, "--list"], ["result", job]):
        refused = edt(words, environ, tmp_path)
        assert refused.returncode == 1 and refused.stderr.strip() == f"edt: {sentence}"
    assert list(tmp_path.iterdir()) == [], "no half of a download is left"
