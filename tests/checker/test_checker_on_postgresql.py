"""The same eyes on PostgreSQL: what is good is quiet there, and a planted bug is found."""

from __future__ import annotations

from pathlib import Path

import psycopg

from checker.conftest import staged
from checker.violation import Invariant
from checker.watch import Checker
from support.postgres import Postgres


def test_a_bug_is_found_on_postgresql_too_and_a_dead_server_is_none(tmp_path: Path) -> None:
    with Postgres() as server:
        url = server.create("edt")
        with staged(tmp_path / "home", url) as stage:
            stage.node()
            stage.submit(app_name="once")
            stage.settle()
        checker = Checker(tmp_path / "home", "nobody", url)
        checker.acknowledge("edt-1", "once")
        assert checker.poll()
        checker.assert_sound()
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")  # the schema's own rules are off
            connection.execute("UPDATE jobs SET state = 'FINISHED'")
        checker.poll()
        assert {each.invariant for each in checker.violations} == {Invariant.I5}
        server.stop()
        assert not checker.poll()
        server.start()
        assert checker.poll()
