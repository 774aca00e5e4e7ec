"""Where the time of a job's steps goes, engine by engine, by its newest report.

Of jobs of before it is not known. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

NULLABLE_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("step_times", NULLABLE_JSON))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
