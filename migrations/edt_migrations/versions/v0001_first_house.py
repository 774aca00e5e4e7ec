"""The first house: users, jobs and their history, nodes and slots, attempts, allocations, resizes, outbox.

Room: migrations. A migration once merged is never edited. The triggers carry what a table cannot say by itself:

* a job moves only as ``job_transitions`` allows, and is born SUBMITTED;
* fences and report cursors only grow;
* a job's history has no gaps and is never rewritten;
* an allocation is released once, an attempt ends once;
* a supervisor ends once for each time it was opened, and is opened again only if it left or was never heard of.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

TRANSITIONS = (
    ("SUBMITTED", "PENDING"),
    ("SUBMITTED", "KILLED"),
    ("PENDING", "RUNNING"),
    ("PENDING", "FINISHED"),
    ("PENDING", "KILLED"),
    ("PENDING", "ERROR"),
    ("RUNNING", "PENDING"),
    ("RUNNING", "FINISHED"),
    ("RUNNING", "KILLED"),
    ("RUNNING", "ERROR"),
)

ILLEGAL_MOVE = """NEW.state <> OLD.state AND NOT EXISTS (
    SELECT 1 FROM job_transitions WHERE "before" = OLD.state AND "after" = NEW.state)"""
GAP = "NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM job_events WHERE job_id = NEW.job_id)"

ENDED = "OLD.{0} IS NOT NULL AND (NEW.{0} IS NULL OR NEW.{0} <> OLD.{0})"
"""Refused for a time that is set once."""

ENDS_AGAIN = """OLD.ended_at IS NOT NULL AND (NEW.ended_at <> OLD.ended_at
    OR (NEW.ended_at IS NULL AND OLD.handed_at IS NOT NULL AND coalesce(OLD.kind, '') <> 'left'))"""
"""A supervisor that left, or that no agent had heard of, is opened for another process; its end is never rewritten."""

RULES = (
    # name, table, when, the condition that is refused (none: always), what is said
    ("jobs_begin", "jobs", "INSERT", "NEW.state <> 'SUBMITTED'", "a job begins as SUBMITTED"),
    ("jobs_move", "jobs", "UPDATE", ILLEGAL_MOVE, "illegal transition of a job"),
    ("jobs_fence", "jobs", "UPDATE", "NEW.fence < OLD.fence", "a fence only grows"),
    ("job_events_gap", "job_events", "INSERT", GAP, "a gap in the history of a job"),
    ("job_events_update", "job_events", "UPDATE", "", "history is never rewritten"),
    ("job_events_delete", "job_events", "DELETE", "", "history is never rewritten"),
    ("attempts_end", "attempts", "UPDATE", ENDED.format("ended_at"), "an attempt ends once"),
    ("supervisors_end", "supervisors", "UPDATE", ENDS_AGAIN, "a supervisor ends once"),
    ("supervisors_acked", "supervisors", "UPDATE", "NEW.acked < OLD.acked", "a report cursor only grows"),
    (
        "allocations_release",
        "allocations",
        "UPDATE",
        ENDED.format("released_at"),
        "an allocation is released once",
    ),
)


def upgrade() -> None:
    _tables()
    for before, after in TRANSITIONS:
        op.execute(
            sa.text('INSERT INTO job_transitions ("before", "after") VALUES (:before, :after)').bindparams(
                before=before, after=after
            )
        )
    for rule in RULES:
        if op.get_bind().dialect.name == "postgresql":
            _postgresql_trigger(*rule)
        else:
            _sqlite_trigger(*rule)


def _sqlite_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    """SQLite asks the condition itself."""
    condition = f"WHEN {refused} " if refused else ""
    op.execute(
        f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW {condition}"
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
    )


def _postgresql_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    """PostgreSQL's WHEN takes no subquery, so the function asks."""
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {refused or 'TRUE'} THEN RAISE EXCEPTION '{said}' USING ERRCODE = 'integrity_constraint_violation'; "
        "END IF; RETURN NEW; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first house: restore a backup instead")


def _where(condition: str) -> dict[str, Any]:
    """A partial index, in the words of both databases."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _tables() -> None:
    op.create_table(
        "users",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("removed_at", sa.Double()),
        sa.CheckConstraint("role IN ('admin', 'user')", name="ck_users_role"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_tokens_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("secret_sha256", name="uq_tokens_secret_sha256"),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "job_transitions",
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("before", "after", name="pk_job_transitions"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), server_default="0", nullable=False),
        sa.Column("events", sa.Integer(), server_default="0", nullable=False),
        sa.Column("framework", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("app_name", sa.Text(), nullable=False),
        sa.Column("args_verbatim", sa.Text(), nullable=False),
        sa.Column("model_main", sa.Text(), nullable=False),
        sa.Column("work_dir", sa.Text(), nullable=False),
        sa.Column("arguments", JSON, nullable=False),
        sa.Column("environ", JSON, nullable=False),
        sa.Column("data_path", sa.Text()),
        sa.Column("num_worker", sa.Integer(), nullable=False),
        sa.Column("worker_device_num", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("engines", sa.Integer()),
        sa.Column("engines_at", sa.Double()),
        sa.Column("steps_total", sa.BigInteger()),
        sa.Column("epochs", sa.Integer()),
        sa.Column("workers", sa.Integer(), server_default="0", nullable=False),
        sa.Column("progress", JSON, nullable=False),
        sa.Column("checkpoint_step", sa.BigInteger()),
        sa.Column("digest", sa.Text()),
        sa.Column("inexact", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("losses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_before", sa.Double()),
        sa.Column("waiting", JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("stop_requested_at", sa.Double()),
        sa.Column("deleted_at", sa.Double()),
        sa.CheckConstraint("engines IS NULL OR engines >= 1", name="ck_jobs_engines"),
        sa.CheckConstraint("num_worker >= 1 AND worker_device_num >= 1", name="ck_jobs_size"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_jobs_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_state", "jobs", ["state"], unique=False)
    op.create_index("ix_jobs_user_id", "jobs", ["user_id"], unique=False)
    op.create_table(
        "job_events",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_events_job_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_job_events"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("intent", sa.Text(), server_default="open", nullable=False),
        sa.Column("lost_at", sa.Double()),
        sa.Column("counter", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.CheckConstraint("intent IN ('open', 'cordoned', 'draining')", name="ck_nodes_intent"),
        sa.CheckConstraint("cores >= 1", name="ck_nodes_cores"),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("name", name="uq_nodes_name"),
        sa.UniqueConstraint("token_sha256", name="uq_nodes_token_sha256"),
    )
    op.create_table(
        "slots",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_slots_node_id"),
        sa.PrimaryKeyConstraint("node_id", "slot", name="pk_slots"),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("home_node_id", ID, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("coordinator", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("trained_at", sa.Double()),
        sa.Column("kind", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("code", sa.Integer()),
        sa.Column("ended_at", sa.Double()),
        sa.CheckConstraint("fence >= 1", name="ck_attempts_fence"),
        sa.ForeignKeyConstraint(["home_node_id"], ["nodes.id"], name="fk_attempts_home_node_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
        sa.PrimaryKeyConstraint("job_id", "fence", name="pk_attempts"),
    )
    op.create_index("uq_attempts_live", "attempts", ["job_id"], unique=True, **_where("ended_at IS NULL"))
    op.create_table(
        "supervisors",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("acked", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("handed_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("kind", sa.Text()),
        sa.ForeignKeyConstraint(
            ["job_id", "fence"], ["attempts.job_id", "attempts.fence"], name="fk_supervisors_job_id_fence"
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_supervisors_node_id"),
        sa.PrimaryKeyConstraint("job_id", "fence", "node_id", name="pk_supervisors"),
    )
    op.create_index("ix_supervisors_open", "supervisors", ["node_id"], unique=False, **_where("ended_at IS NULL"))
    op.create_table(
        "resizes",
        sa.Column("id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("from_slots", sa.Integer(), nullable=False),
        sa.Column("to_slots", sa.Integer(), nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=False),
        sa.Column("rung_at", sa.Double()),
        sa.Column("woken_by", sa.Text()),
        sa.Column("woken_at", sa.Double()),
        sa.Column("started_at", sa.Double()),
        sa.Column("joined_at", sa.Double()),
        sa.Column("first_step_at", sa.Double()),
        sa.Column("gone_at", sa.Double()),
        sa.Column("generation", sa.Integer()),
        sa.Column("step", sa.BigInteger()),
        sa.Column("workers", sa.Integer()),
        sa.Column("pause_seconds", sa.Double()),
        sa.CheckConstraint("woken_by IN ('doorbell', 'timer', 'start')", name="ck_resizes_woken_by"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_resizes_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_resizes"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_resizes_decided_at", "resizes", ["decided_at"], unique=False)
    op.create_index("ix_resizes_job_id", "resizes", ["job_id"], unique=False)
    op.create_table(
        "resize_nodes",
        sa.Column("resize_id", ID, nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_resize_nodes_node_id"),
        sa.ForeignKeyConstraint(["resize_id"], ["resizes.id"], name="fk_resize_nodes_resize_id"),
        sa.PrimaryKeyConstraint("resize_id", "node_id", name="pk_resize_nodes"),
    )
    op.create_table(
        "allocations",
        sa.Column("id", ID, nullable=False),
        sa.Column("job_id", ID, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("grown_by", ID, nullable=False),
        sa.Column("shrunk_by", ID),
        sa.Column("decided_at", sa.Double(), nullable=False),
        sa.Column("handed_at", sa.Double()),
        sa.Column("started_at", sa.Double()),
        sa.Column("joined_at", sa.Double()),
        sa.Column("counted_at", sa.Double()),
        sa.Column("release_asked_at", sa.Double()),
        sa.Column("released_at", sa.Double()),
        sa.Column("kind", sa.Text()),
        sa.ForeignKeyConstraint(["grown_by"], ["resizes.id"], name="fk_allocations_grown_by"),
        sa.ForeignKeyConstraint(
            ["job_id", "fence", "node_id"],
            ["supervisors.job_id", "supervisors.fence", "supervisors.node_id"],
            name="fk_allocations_job_id_fence_node_id",
        ),
        sa.ForeignKeyConstraint(
            ["node_id", "slot"], ["slots.node_id", "slots.slot"], name="fk_allocations_node_id_slot"
        ),
        sa.ForeignKeyConstraint(["shrunk_by"], ["resizes.id"], name="fk_allocations_shrunk_by"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_allocations_grown_by", "allocations", ["grown_by"], unique=False)
    op.create_index("ix_allocations_job", "allocations", ["job_id", "fence"], unique=False)
    op.create_index("ix_allocations_shrunk_by", "allocations", ["shrunk_by"], unique=False)
    op.create_index(
        "uq_allocations_open",
        "allocations",
        ["node_id", "slot"],
        unique=True,
        **_where("released_at IS NULL"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", ID, nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("arguments", JSON, nullable=False),
        sa.Column("resize_id", ID),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["resize_id"], ["resizes.id"], name="fk_outbox_resize_id"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        sqlite_autoincrement=True,
    )
