"""Whether the engines of a job were compared: how often they were equal, when last, and who joined since.

Room: migrations. A migration once merged is never edited. Engines of jobs from before were not compared, so every
job that has had two of them at once has engines that nobody has compared.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("comparisons", sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("compared_step", sa.BigInteger()))
    op.add_column("jobs", sa.Column("uncompared_step", sa.BigInteger()))
    op.execute(
        "UPDATE jobs SET uncompared_step = (SELECT coalesce(max(step), 0) FROM resizes "
        "WHERE resizes.job_id = jobs.id AND resizes.workers > 1) "
        "WHERE EXISTS (SELECT 1 FROM resizes WHERE resizes.job_id = jobs.id AND resizes.workers > 1)"
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
