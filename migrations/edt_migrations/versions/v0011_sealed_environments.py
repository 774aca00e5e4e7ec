"""The environments of jobs are sealed, in a table of their own, and go when nothing of their job can start any more.

Room: migrations. A migration once merged is never edited. The key does not lie here: what an earlier release kept in
plain text is moved to ``plain``, of jobs that may still start, and sealed by whoever starts first. What it leaves in
the database's files is wiped then, once (``home.wiped_at``).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "job_environs",
        sa.Column("job_id", ID, autoincrement=False, nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("sealed", sa.Text()),
        sa.Column("plain", JSON),
        sa.CheckConstraint(
            "(key_id IS NULL) = (sealed IS NULL) AND (sealed IS NULL) <> (plain IS NULL)", name="ck_job_environs_one"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_environs_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_environs"),
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute("PRAGMA secure_delete=ON")
    op.execute(
        "INSERT INTO job_environs (job_id, plain) SELECT id, environ FROM jobs "
        "WHERE state IN ('SUBMITTED', 'PENDING', 'RUNNING') AND stop_requested_at IS NULL "
        "AND CAST(environ AS TEXT) <> '{}'"
    )
    op.drop_column("jobs", "environ")
    op.add_column("home", sa.Column("wiped_at", sa.Double(), server_default="0", nullable=False))


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
