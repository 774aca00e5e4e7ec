"""What the platform is told: by variable, by file, and where the passwords of URLs go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from edt_scheduler.settings import Settings

ODD = "p@ss/w:rd#ü"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{ODD}\n")
    return path


def test_a_setting_is_what_its_file_holds(monkeypatch: pytest.MonkeyPatch, secret: Path) -> None:
    monkeypatch.setenv("EDT_DATABASE_PASSWORD_FILE", str(secret))
    password = Settings().database_password
    assert password is not None and password.get_secret_value() == ODD


def test_a_variable_goes_before_its_file(monkeypatch: pytest.MonkeyPatch, secret: Path) -> None:
    monkeypatch.setenv("EDT_DATABASE_PASSWORD_FILE", str(secret))
    monkeypatch.setenv("EDT_DATABASE_PASSWORD", "said")
    password = Settings().database_password
    assert password is not None and password.get_secret_value() == "said"


def test_a_password_reaches_the_database_as_it_is(monkeypatch: pytest.MonkeyPatch, secret: Path) -> None:
    monkeypatch.setenv("EDT_DATABASE_PASSWORD_FILE", str(secret))
    monkeypatch.setenv("EDT_DATABASE_URL", "postgresql://edt@postgres:5432/platform?connect_timeout=3")
    url = make_url(Settings().database)
    assert (url.username, url.password, url.host, url.port, url.database) == ("edt", ODD, "postgres", 5432, "platform")
    assert url.query == {"connect_timeout": "3"}


def test_nodes_are_told_the_broker_at_the_address_at_which_they_reach_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("word")
    monkeypatch.setenv("EDT_BROKER_PASSWORD_FILE", str(password))
    monkeypatch.setenv("EDT_BROKER_URL", "redis://valkey:6379/0")
    assert Settings().nodes_broker == Settings().broker_url == "redis://:word@valkey:6379/0"
    monkeypatch.setenv("EDT_NODES_BROKER_URL", "redis://control:9281/0")
    assert Settings().nodes_broker == "redis://:word@control:9281/0"
    monkeypatch.setenv("EDT_NODES_BROKER_URL", "")
    assert Settings().nodes_broker is None


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), ("\n", "is empty")])
def test_a_secret_file_that_holds_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("EDT_BROKER_PASSWORD_FILE", str(path))
    with pytest.raises(ValidationError, match=f"{path} {why}") as refused:
        Settings()
    assert refused.value.errors()[0]["loc"] == ("broker_password",)


def test_migrating_takes_the_database_from_the_settings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edt_migrations"]
    environ = {**os.environ, "EDT_HOME": str(tmp_path)}
    assert subprocess.run(command, env=environ, check=False, timeout=60).returncode == 0
    assert (tmp_path / "edt.db").stat().st_size > 0
    environ["EDT_DATABASE_PASSWORD_FILE"] = str(tmp_path / "nowhere")
    refused = subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert refused.stderr.startswith("EDT_DATABASE_PASSWORD: ") and refused.stderr.count("\n") == 1


def test_a_scheduler_that_works_keeps_its_sign_of_life_young(tmp_path: Path) -> None:
    sign = tmp_path / "alive"
    environ = {**os.environ, "EDT_HOME": str(tmp_path / "home"), "EDT_TICK_SECONDS": "0.1", "EDT_BROKER_URL": ""}
    with subprocess.Popen(
        [sys.executable, "-m", "edt_scheduler"], env={**environ, "EDT_ALIVE_FILE": str(sign)}, stderr=subprocess.PIPE
    ) as scheduler:
        try:
            ages = set()
            until = time.monotonic() + 60
            while len(ages) < 3 and time.monotonic() < until:
                ages |= {sign.stat().st_mtime_ns} if sign.exists() else set()
                time.sleep(0.05)
            assert len(ages) == 3
        finally:
            scheduler.kill()
