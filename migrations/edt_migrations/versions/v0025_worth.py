"""What the scheduler decides with: queues, priorities, least sizes, what must come first, deadlines, measured speeds.

And sums of each job's history, so that no decision reads the history, and what was decided. Jobs of before are in the
root queue and have the priority of all others. The sums are filled for the jobs that are not over. A migration once
merged is never edited.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
NULLABLE_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _columns_of_jobs()
    _speeds()
    _queues()
    _decisions()
    op.add_column("allocations", sa.Column("until_joined", sa.Boolean(), server_default=sa.false(), nullable=False))
    for name, table, where in (
        ("ix_jobs_fence_due", "jobs", "fence_due IS NOT NULL"),
        ("ix_jobs_pending_timeout", "jobs", "pending_timeout IS NOT NULL AND finished_at IS NULL"),
        ("ix_resizes_unwoken", "resizes", "woken_at IS NULL"),
    ):
        few = sa.text(where)
        op.create_index(name, table, ["id"], unique=False, sqlite_where=few, postgresql_where=few)
    op.create_index("ix_resize_nodes_node_id", "resize_nodes", ["node_id"], unique=False)


def _columns_of_jobs() -> None:
    columns: tuple[sa.Column[Any], ...] = (
        sa.Column("gpu_models", NULLABLE_JSON),
        sa.Column("max_slots", sa.Integer()),
        sa.Column("sizes", NULLABLE_JSON),
        sa.Column("queue", sa.Text(), server_default="", nullable=False),
        sa.Column("after", JSON, server_default="[]", nullable=False),
        sa.Column("deadline", sa.Double()),
        sa.Column("time_limit", sa.Double()),
        sa.Column("prior_key", sa.Text()),
        sa.Column("stopped_for", sa.Text()),
        sa.Column("slot_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("ran_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("resized_at", sa.Double()),
        sa.Column("pauses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pause_seconds", sa.Double(), server_default="0", nullable=False),
    )
    for column in columns:
        op.add_column("jobs", column)
    # with constraints, which Alembic cannot add on SQLite
    for name in ("priority", "submitted_priority", "min_slots"):
        op.execute(
            f"ALTER TABLE jobs ADD COLUMN {name} INTEGER DEFAULT '1' NOT NULL "
            f"CONSTRAINT ck_jobs_{name} CHECK ({name} >= 1)"
        )
    for name, what, table in (
        ("slot_seconds", "coalesce(sum(released_at - decided_at), 0)", "allocations"),
        ("ran_seconds", "coalesce(sum(ended_at - started_at), 0)", "attempts"),
        ("resized_at", "max(decided_at)", "resizes"),
        ("pauses", "count(pause_seconds)", "resizes"),
        ("pause_seconds", "coalesce(sum(resizes.pause_seconds), 0)", "resizes"),
    ):
        found = f"SELECT {what} FROM {table} WHERE job_id = jobs.id"  # noqa: S608
        op.execute(f"UPDATE jobs SET {name} = ({found}) WHERE finished_at IS NULL")  # noqa: S608


def _speeds() -> None:
    def columns() -> list[sa.Column[Any]]:
        return [
            sa.Column("model", sa.Text(), nullable=False),
            sa.Column("workers", sa.Integer(), autoincrement=False, nullable=False),
            sa.Column("nodes", sa.Integer(), autoincrement=False, nullable=False),
            sa.Column("step_seconds", sa.Double(), nullable=False),
            sa.Column("samples", sa.BigInteger(), nullable=False),
            sa.Column("at", sa.Double(), nullable=False),
        ]

    op.create_table(
        "speed_points",
        sa.Column("job_id", ID, nullable=False),
        *columns(),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_speed_points_job_id"),
        sa.PrimaryKeyConstraint("job_id", "model", "workers", "nodes", name="pk_speed_points"),
    )
    op.create_table(
        "prior_points",
        sa.Column("prior_key", sa.Text(), nullable=False),
        *columns(),
        sa.PrimaryKeyConstraint("prior_key", "model", "workers", "nodes", name="pk_prior_points"),
    )
    op.create_index("ix_prior_points_at", "prior_points", ["at"], unique=False)


def _queues() -> None:
    op.create_table(
        "queues",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("quota", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("limit", sa.Integer()),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("quota >= 0 AND weight > 0", name="ck_queues_share"),
        sa.PrimaryKeyConstraint("path", name="pk_queues"),
    )
    op.create_table(
        "queue_usage",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("user_id", ID, autoincrement=False, nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_queue_usage_user_id"),
        sa.PrimaryKeyConstraint("queue", "user_id", name="pk_queue_usage"),
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("actions", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_decisions_at", "decisions", ["at"], unique=False)
    op.create_table(
        "start_estimates",
        sa.Column("job_id", ID, autoincrement=False, nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("expected_at", sa.Double()),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_start_estimates_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_start_estimates"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
