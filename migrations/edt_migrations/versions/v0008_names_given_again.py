"""A removed user's name may be given again, to a new user: names are unique among those who were not removed.

Room: migrations. A migration once merged is never edited. Until now a name that was given again brought its old user
back; who that was cannot be told from the rows, so those users stay one. Numbers of users are never given twice.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NOT_REMOVED = sa.text("removed_at IS NULL")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("uq_users_name", "users")
    else:
        _without_the_constraint()
    op.create_index(
        "uq_users_name", "users", ["name"], unique=True, sqlite_where=NOT_REMOVED, postgresql_where=NOT_REMOVED
    )


def _without_the_constraint() -> None:
    """SQLite drops a constraint only with its table. The connection of a migration does not enforce foreign keys, and
    those of other tables name ``users``, which is there again before anybody looks."""
    op.create_table(
        "users_again",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("removed_at", sa.Double()),
        sa.CheckConstraint("role IN ('admin', 'user')", name="ck_users_role"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sqlite_autoincrement=True,
    )
    op.execute("INSERT INTO users_again SELECT id, name, role, password_hash, created_at, removed_at FROM users")
    op.drop_table("users")
    op.rename_table("users_again", "users")


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
