"""Columns, a table, triggers and a value take the words that the code uses now. Nothing is added and nothing goes.

A migration once merged is never edited. SQLite cannot alter a CHECK constraint, so the text of that one is replaced in
``sqlite_master``, as its manual describes for constraints that rows cannot violate.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

COLUMNS = (
    ("attempts", "home_node_id", "head_node_id"),
    ("attempts", "host_node_id", "coordinator_node_id"),
    ("resizes", "rung_at", "notified_at"),
    ("supervisors", "said_at", "reports_complete_at"),
)
TRIGGERS = {
    "jobs_told_new": "jobs_changed_insert",
    "jobs_told": "jobs_changed_update",
    "nodes_told_new": "nodes_changed_insert",
    "nodes_told": "nodes_changed_update",
    "allocations_told_new": "allocations_changed_insert",
    "allocations_told": "allocations_changed_update",
    "resizes_told_new": "resizes_changed_insert",
    "resizes_told": "resizes_changed_update",
    "attempts_told": "attempts_changed_update",
}

ENDS_AGAIN = """OLD.ended_at IS NOT NULL AND (NEW.ended_at <> OLD.ended_at
    OR (NEW.ended_at IS NULL AND OLD.handed_at IS NOT NULL AND coalesce(OLD.kind, '') <> 'left'
        AND (coalesce(OLD.kind, '') <> 'lost' OR OLD.reports_complete_at IS NULL)))"""
"""As in 0003. SQLite renames the column in its trigger by itself."""


def upgrade() -> None:
    for table, before, after in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {before} TO {after}")
    op.create_table(
        "api_heartbeat",
        sa.Column("id", ID, nullable=False),
        sa.Column("counter", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("id = 1", name="ck_api_heartbeat_one"),
        sa.PrimaryKeyConstraint("id", name="pk_api_heartbeat"),
    )
    op.execute("INSERT INTO api_heartbeat (id, counter) SELECT id, counter FROM front_door")
    op.drop_table("front_door")
    if op.get_bind().dialect.name == "postgresql":
        _postgresql()
    else:
        _sqlite()


def _postgresql() -> None:
    for table, before, after in COLUMNS[:2]:
        op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT fk_{table}_{before} TO fk_{table}_{after}")
    for before, after in TRIGGERS.items():
        op.execute(f"ALTER TRIGGER {before} ON {before.split('_', maxsplit=1)[0]} RENAME TO {after}")
    op.execute(
        "CREATE OR REPLACE FUNCTION supervisors_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {ENDS_AGAIN} THEN RAISE EXCEPTION 'a supervisor ends once' "
        "USING ERRCODE = 'integrity_constraint_violation'; "
        "END IF; RETURN NEW; END $$"
    )
    for key in ("id", "job_id"):
        op.execute(f"ALTER FUNCTION tell_{key}() RENAME TO record_change_of_{key}")
    op.execute("ALTER TABLE resizes DROP CONSTRAINT ck_resizes_woken_by")
    op.execute("UPDATE resizes SET woken_by = 'notification' WHERE woken_by = 'doorbell'")
    op.execute(
        "ALTER TABLE resizes ADD CONSTRAINT ck_resizes_woken_by CHECK (woken_by IN ('notification', 'timer', 'start'))"
    )


def _sqlite() -> None:
    connection = op.get_bind()
    for before, after in TRIGGERS.items():
        text = connection.execute(
            sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name"), {"name": before}
        ).scalar_one()
        op.execute(f"DROP TRIGGER {before}")
        connection.exec_driver_sql(text.replace(before, after, 1))
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, '''doorbell''', '''notification''') "
        "WHERE type = 'table' AND name = 'resizes'"
    )
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(replace(sql, 'fk_attempts_home_node_id', 'fk_attempts_head_node_id'), "
        "'fk_attempts_host_node_id', 'fk_attempts_coordinator_node_id') WHERE type = 'table' AND name = 'attempts'"
    )
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    connection.exec_driver_sql("UPDATE resizes SET woken_by = 'notification' WHERE woken_by = 'doorbell'")


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
