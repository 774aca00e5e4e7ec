"""What is over may go, whole: jobs with all their rows; and what is counted of them before. Room: migrations.

A migration once merged is never edited. A job is purged in one transaction: a row of ``purges`` names it, its rows go,
the job goes, the row of ``purges`` goes. The schema holds this:

* events, attempts, resizes and allocations are deleted of a job in ``purges`` only, and so is the job itself;
* a job comes into ``purges`` only when it was deleted, is over, its folder is gone and nothing of it is open;
* a row of ``purges`` goes only after its job. ``never`` refers to a job that cannot exist, and is checked at COMMIT: so
  a transaction that has purged a part of a job cannot commit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

HISTORY = ("job_events", "attempts", "resizes", "allocations")

NOT_YET = """NEW.never >= 0
    OR EXISTS (SELECT 1 FROM attempts WHERE job_id = NEW.job_id AND ended_at IS NULL)
    OR EXISTS (SELECT 1 FROM supervisors WHERE job_id = NEW.job_id AND ended_at IS NULL)
    OR EXISTS (SELECT 1 FROM allocations WHERE job_id = NEW.job_id AND released_at IS NULL)
    OR NOT EXISTS (SELECT 1 FROM jobs WHERE id = NEW.job_id
        AND deleted_at IS NOT NULL AND finished_at IS NOT NULL AND folder_gone_at IS NOT NULL)"""
NOT_PURGED = "NOT EXISTS (SELECT 1 FROM purges WHERE job_id = {0})"

RULES = (
    # name, table, when, the condition that is refused (none: always), what is said
    ("purges_begin", "purges", "INSERT", NOT_YET, "a job is purged once it is deleted, over, and its folder gone"),
    ("purges_update", "purges", "UPDATE", "", "a purge is never rewritten"),
    ("purges_end", "purges", "DELETE", "EXISTS (SELECT 1 FROM jobs WHERE id = OLD.job_id)", "a job is purged whole"),
    ("jobs_delete", "jobs", "DELETE", NOT_PURGED.format("OLD.id"), "a job goes only by a purge"),
    *(
        (f"{table}_delete", table, "DELETE", NOT_PURGED.format("OLD.job_id"), "history goes only whole, with its job")
        for table in HISTORY
    ),
)

OVER = "finished_at IS NOT NULL AND deleted_at IS NULL"
INDEXES = (
    ("ix_jobs_over", ["finished_at"], OVER),
    ("ix_jobs_results", ["finished_at"], f"{OVER} AND results_removed_at IS NULL"),
    ("ix_jobs_metrics", ["finished_at"], f"{OVER} AND metrics_thinned_at IS NULL"),
    ("ix_jobs_folder_of_deleted", ["deleted_at"], "deleted_at IS NOT NULL AND folder_gone_at IS NULL"),
    (
        "ix_jobs_folder_of_kept",
        ["results_removed_at"],
        "results_removed_at IS NOT NULL AND folder_gone_at IS NULL",
    ),
    ("ix_jobs_deleted_at", ["deleted_at"], "deleted_at IS NOT NULL"),
)


def upgrade() -> None:
    for name in ("results_removed_at", "results_days", "folder_gone_at", "metrics_thinned_at"):
        op.add_column("jobs", sa.Column(name, sa.Double()))
    _tables()
    for name, columns, where in INDEXES:
        condition = sa.text(where)
        op.create_index(name, "jobs", columns, sqlite_where=condition, postgresql_where=condition)
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        op.execute("DROP TRIGGER job_events_delete ON job_events")
        op.execute("DROP FUNCTION job_events_delete()")
    else:
        op.execute("DROP TRIGGER job_events_delete")
    for rule in RULES:
        (_postgresql_trigger if postgresql else _sqlite_trigger)(*rule)


def _sqlite_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    condition = f"WHEN {refused} " if refused else ""
    op.execute(
        f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW {condition}"
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
    )


def _postgresql_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    """What a function before a DELETE answers must be the old row: with none, nothing would be deleted, silently."""
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {refused or 'TRUE'} THEN RAISE EXCEPTION '{said}' USING ERRCODE = 'integrity_constraint_violation'; "
        f"END IF; RETURN {'OLD' if when == 'DELETE' else 'NEW'}; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _tables() -> None:
    op.create_table(
        "purges",
        sa.Column("job_id", ID, autoincrement=False, nullable=False),
        sa.Column("never", ID, nullable=False),
        sa.ForeignKeyConstraint(["never"], ["jobs.id"], name="fk_purges_never", deferrable=True, initially="DEFERRED"),
        sa.PrimaryKeyConstraint("job_id", name="pk_purges"),
    )
    op.create_index("ix_purges_never", "purges", ["never"], unique=False)
    op.create_table(
        "slot_hours",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("utilisation", sa.Double(), nullable=False),
        sa.Column("utilisation_most", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("memory_bytes_most", sa.BigInteger()),
        sa.Column("power_watts", sa.Double()),
        sa.Column("temperature_c", sa.Double()),
        sa.ForeignKeyConstraint(
            ["node_id", "slot"], ["slots.node_id", "slots.slot"], name="fk_slot_hours_node_id_slot"
        ),
        sa.PrimaryKeyConstraint("node_id", "slot", "hour", name="pk_slot_hours"),
    )
    op.create_index("ix_slot_hours_hour", "slot_hours", ["hour"], unique=False)
    op.create_table(
        "user_days",
        sa.Column("user_id", ID, nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_user_days_user_id"),
        sa.PrimaryKeyConstraint("user_id", "day", name="pk_user_days"),
    )
    op.create_index("ix_user_days_day", "user_days", ["day", "user_id"], unique=False)
    op.create_table(
        "rolled_up",
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("what", name="pk_rolled_up"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
