"""Numbers that were given to submits whose job is not written yet.

Room: migrations. A migration once merged is never edited. There are none before the first submit of this release.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0008"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "reservations",
        sa.Column("number", ID, autoincrement=False, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_reservations"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
