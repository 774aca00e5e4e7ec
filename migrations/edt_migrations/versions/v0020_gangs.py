"""Jobs that are gangs, the ports by which their processes meet, and the frameworks that administrators have added.

The jobs of before are elastic. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
NULLABLE_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("gang", NULLABLE_JSON))
    op.add_column("jobs", sa.Column("default_log", sa.Text(), server_default="steps", nullable=False))
    op.add_column("supervisors", sa.Column("ports", NULLABLE_JSON))
    op.create_table(
        "added_frameworks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("entry", JSON, nullable=False),
        sa.Column("added_by", sa.Text(), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_added_frameworks"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
