"""The OpenAPI document: complete, the same everywhere, and what the dashboard's client was made of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from edt_api.__main__ import main

DASHBOARD = Path(__file__).parents[2] / "api" / "dashboard"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    assert main(["--openapi", str(path)]) == 0
    return path.read_text()


def test_it_is_written_without_a_home_and_twice_the_same(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDT_PORT", "70000")  # not even looked at
    assert main(["--openapi"]) == 0
    assert capsys.readouterr().out == written
    assert not (tmp_path / "home").exists()


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--openapi", str(tmp_path / "none" / "openapi.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_every_operation_has_a_short_name_and_says_how_it_refuses(written: str) -> None:
    paths = json.loads(written)["paths"]
    operations = [(path, operation) for path, methods in paths.items() for operation in methods.values()]
    names = [operation["operationId"] for _, operation in operations]
    assert len(set(names)) == len(names) > 25
    assert {"jobs_listing", "jobs_get", "nodes_drain", "timeline_timeline", "execs_submit"} <= set(names)
    for path, operation in operations:
        kind = "application/problem+json" if path.startswith("/api/v1/") else "text/plain"
        if not path.endswith("z"):
            assert kind in operation["responses"]["default"]["content"], path
        assert "422" not in operation["responses"], path


def test_the_dashboard_holds_this_very_document(written: str) -> None:
    kept = (DASHBOARD / "openapi.json").read_text()
    assert kept == written, "python -m edt_api --openapi api/dashboard/openapi.json, then `npm run types` there"


def test_the_dashboards_types_were_made_of_it() -> None:
    digest = hashlib.sha256((DASHBOARD / "openapi.json").read_bytes()).hexdigest()
    first = (DASHBOARD / "src" / "api" / "schema.d.ts").read_text().splitlines()[0]
    assert digest in first, "the types are older than openapi.json: `npm run types` in api/dashboard"
