"""Validations and their metrics, the best values of a job, and how long its training steps took.

Jobs of before have no validation and no best value. How many samples they trained is not known. A migration once merged
is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NULLABLE_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("trained_samples", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("trained_seconds", sa.Double(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("validation", NULLABLE_JSON))
    op.add_column("jobs", sa.Column("best", JSON, server_default="{}", nullable=False))
    op.add_column("jobs", sa.Column("best_model", NULLABLE_JSON))
    op.create_table(
        "validations",
        sa.Column("job_id", ID, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("epoch", sa.Integer()),
        sa.Column("workers", sa.Integer()),
        sa.Column("loss", sa.Double()),
        sa.Column("metrics", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_validations_job_id"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_validations"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
