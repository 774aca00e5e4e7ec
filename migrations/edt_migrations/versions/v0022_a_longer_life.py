"""Pauses, the epochs that users give to jobs, and the jobs from whose checkpoints others begin.

Jobs of before are not paused, have the epochs of their scripts, and began anew. A migration once merged is never
edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("paused_at", sa.Double()))
    op.add_column("jobs", sa.Column("paused_by", sa.Text()))
    op.add_column("jobs", sa.Column("wanted_epochs", sa.Integer()))
    op.add_column("jobs", sa.Column("resumed_from", sa.BigInteger()))
    op.add_column("jobs", sa.Column("resumed_step", sa.BigInteger()))
    op.add_column("attempts", sa.Column("wanted_epochs", sa.Integer()))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
