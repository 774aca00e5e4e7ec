"""A database knows the home that it belongs to, by an id that lies in both. Room: migrations.

The row is written by whoever starts first, once it has seen that the two belong together.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "home",
        sa.Column("id", ID, nullable=False),
        sa.Column("home_id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_home_one"),
        sa.PrimaryKeyConstraint("id", name="pk_home"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
