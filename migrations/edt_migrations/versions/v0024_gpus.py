"""Which GPUs nodes have and how they are, and which kind of slot a job asks for.

Of slots of before nothing more is known until their node registers again. Jobs of before ask for neither kind, whatever
their options say: when they were taken, the option had no effect. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

NULLABLE_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("device", sa.Text()))
    op.add_column("slots", sa.Column("model", sa.Text()))
    op.add_column("slots", sa.Column("memory_total_bytes", sa.BigInteger()))
    op.add_column("slots", sa.Column("compute_capability", sa.Text()))
    op.add_column("slots", sa.Column("mig_profile", sa.Text()))
    op.add_column("slots", sa.Column("problem", sa.Text()))
    with op.batch_alter_table("slot_usage") as table:  # SQLite changes no column of a table that is there
        table.alter_column("utilisation", existing_type=sa.Double(), nullable=True)
        table.add_column(sa.Column("ecc_errors", sa.BigInteger()))
        table.add_column(sa.Column("foreign_processes", NULLABLE_JSON))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
