"""When an administrator removed a node that is lost. Its row stays: history names it.

Room: migrations. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("removed_at", sa.Double()))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
