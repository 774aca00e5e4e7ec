"""The front door's pulse: whether any API serves, as the scheduler sees it. Room: migrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "front_door",
        sa.Column("id", ID, nullable=False),
        sa.Column("counter", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("id = 1", name="ck_front_door_one"),
        sa.PrimaryKeyConstraint("id", name="pk_front_door"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
