"""Nothing stops a training: homes that move, restarts with a limit, fences still to be written, what a loss cost.

Room: migrations. A migration once merged is never edited. One rule changes: a supervisor whose death was reported
may be followed by another of the same attempt on the same node, as one that left may.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ENDS_AGAIN = """OLD.ended_at IS NOT NULL AND (NEW.ended_at <> OLD.ended_at
    OR (NEW.ended_at IS NULL AND OLD.handed_at IS NOT NULL AND coalesce(OLD.kind, '') <> 'left'
        AND (coalesce(OLD.kind, '') <> 'lost' OR OLD.said_at IS NULL)))"""
"""A supervisor that left, that was lost and has been spoken for, or that no agent had heard of, is opened for another
process; its end is never rewritten."""


def upgrade() -> None:
    for column in (
        sa.Column("max_restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("raised", sa.Text()),
        sa.Column("raised_step", sa.BigInteger()),
        sa.Column("ooms", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pull_failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cap", sa.Integer()),
        sa.Column("cap_until", sa.Double()),
        sa.Column("fence_due", sa.Integer()),
    ):
        op.add_column("jobs", column)
    op.add_column("attempts", sa.Column("failed_step", sa.BigInteger()))
    op.add_column("attempts", sa.Column("oom", sa.Boolean()))
    op.add_column("supervisors", sa.Column("said_at", sa.Double()))
    op.add_column("resizes", sa.Column("recomputed", sa.Integer()))
    postgresql = op.get_bind().dialect.name == "postgresql"
    number = "BIGINT" if postgresql else "INTEGER"
    # By hand: Alembic adds a reference to a table of SQLite only by copying it, which would drop its triggers.
    op.execute(
        f"ALTER TABLE attempts ADD COLUMN host_node_id {number} "
        "CONSTRAINT fk_attempts_host_node_id REFERENCES nodes (id)"
    )
    # Until now whoever was home was the one that had told where its coordinator listens.
    op.execute("UPDATE attempts SET host_node_id = home_node_id WHERE coordinator IS NOT NULL AND ended_at IS NULL")
    _replace_rule(postgresql)


def _replace_rule(postgresql: bool) -> None:
    said = "a supervisor ends once"
    if postgresql:
        op.execute(
            "CREATE OR REPLACE FUNCTION supervisors_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF {ENDS_AGAIN} THEN RAISE EXCEPTION '{said}' USING ERRCODE = 'integrity_constraint_violation'; "
            "END IF; RETURN NEW; END $$"
        )
        return
    op.execute("DROP TRIGGER supervisors_end")
    op.execute(
        f"CREATE TRIGGER supervisors_end BEFORE UPDATE ON supervisors FOR EACH ROW WHEN {ENDS_AGAIN} "
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
    )


def downgrade() -> None:
    raise NotImplementedError(
        "attempts whose home has moved cannot be told in the older words: restore a backup instead"
    )
