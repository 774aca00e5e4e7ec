"""A job's row keeps the platform's options that its user gave, and what its submit was remarked upon.

``options`` is a list of [option, value], in the order given; secrets are masked in it. The remark of a job of before
stands in its history alone. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("options", JSON, server_default="[]", nullable=False))
    op.add_column("jobs", sa.Column("remark", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
