"""How long a job may wait for its first start, if its user has set a limit.

A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("pending_timeout", sa.BigInteger()))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
