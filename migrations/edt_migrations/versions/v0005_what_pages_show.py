"""What pages show: points of metrics, the use of slots, and a feed of what has changed. Room: migrations.

The feed (``changes``) is written by triggers, so whoever writes, writes it too. A row names what changed and nothing
of how: a reader looks the thing up. On PostgreSQL it also carries the number of its transaction, since rows become
visible in the order of commits, which is not the order of their ids. A node's pulse (counter, seen_at) is no change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

WATCHED = ("job", "node", "allocation", "resize")
"""Each has a table of its own, in the plural; its rows' ids are told. Of an attempt the job's id is, when it ends."""

OF_A_NODE = ("host", "cores", "incarnation", "intent", "launcher", "lost_at", "registered_at", "usage_at")
"""Columns of a node whose change is told. Its slots change with ``registered_at``, their use with ``usage_at``."""

ENDS = "OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("image", sa.Text()))
    op.add_column("nodes", sa.Column("launcher", sa.Text(), server_default="process", nullable=False))
    op.add_column("nodes", sa.Column("usage_at", sa.Double()))
    _tables()
    for name, columns in (
        ("ix_allocations_decided_at", ["decided_at"]),
        ("ix_allocations_released_at", ["released_at"]),
    ):
        op.create_index(name, "allocations", columns, unique=False)
    if op.get_bind().dialect.name == "postgresql":
        _postgresql_feed()
    else:
        _sqlite_feed()


def _tables() -> None:
    op.create_table(
        "metric_points",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("epoch", sa.Integer()),
        sa.Column("workers", sa.Integer()),
        sa.Column("loss", sa.Double()),
        sa.Column("samples_per_second", sa.Double()),
        sa.Column("metrics", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_metric_points_job_id"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_metric_points"),
    )
    op.create_table(
        "slot_usage",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("utilisation", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("memory_total_bytes", sa.BigInteger()),
        sa.Column("power_watts", sa.Double()),
        sa.Column("temperature_c", sa.Double()),
        sa.ForeignKeyConstraint(
            ["node_id", "slot"], ["slots.node_id", "slots.slot"], name="fk_slot_usage_node_id_slot"
        ),
        sa.PrimaryKeyConstraint("node_id", "slot", "time", name="pk_slot_usage"),
    )
    op.create_index("ix_slot_usage_time", "slot_usage", ["time"], unique=False)
    op.create_table(
        "changes",
        sa.Column("id", ID, nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_changes_xid", "changes", ["xid"], unique=False)


def _sqlite_feed() -> None:
    """One writer at a time: ids are in the order of commits."""
    for topic in WATCHED:
        moved = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in OF_A_NODE)
        _sqlite_trigger(f"{topic}s_told_new", f"INSERT ON {topic}s", topic, "NEW.id")
        _sqlite_trigger(f"{topic}s_told", f"UPDATE ON {topic}s", topic, "NEW.id", moved if topic == "node" else "")
    _sqlite_trigger("attempts_told", "UPDATE ON attempts", "attempt", "NEW.job_id", ENDS)


def _sqlite_trigger(name: str, when: str, topic: str, key: str, condition: str = "") -> None:
    told = f"INSERT INTO changes (xid, topic, key, time) VALUES (0, '{topic}', {key}, {_SQLITE_NOW});"  # noqa: S608
    only = f"WHEN {condition} " if condition else ""
    op.execute(f"CREATE TRIGGER {name} AFTER {when} FOR EACH ROW {only}BEGIN {told} END")


_SQLITE_NOW = "(julianday('now') - 2440587.5) * 86400.0"


_TELL = """CREATE FUNCTION tell_KEY() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO changes (xid, topic, key, time)
    VALUES (pg_current_xact_id()::text::bigint, TG_ARGV[0], NEW.KEY, extract(epoch FROM clock_timestamp()));
    RETURN NULL; END $$"""


def _postgresql_feed() -> None:
    for key in ("id", "job_id"):
        op.execute(_TELL.replace("KEY", key))
    for topic in WATCHED:
        moved = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in OF_A_NODE)
        told = f"tell_id('{topic}')"
        _postgresql_trigger(f"{topic}s_told_new", f"INSERT ON {topic}s", told)
        _postgresql_trigger(f"{topic}s_told", f"UPDATE ON {topic}s", told, moved if topic == "node" else "")
    _postgresql_trigger("attempts_told", "UPDATE ON attempts", "tell_job_id('attempt')", ENDS)


def _postgresql_trigger(name: str, when: str, told: str, condition: str = "") -> None:
    only = f"WHEN ({condition}) " if condition else ""
    op.execute(f"CREATE TRIGGER {name} AFTER {when} FOR EACH ROW {only}EXECUTE FUNCTION {told}")


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
