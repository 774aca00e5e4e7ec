"""Users may have the role viewer, and users make API tokens.

A migration once merged is never edited. Tokens of earlier releases stay until they expire, and open nothing: they are
no JWT.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NOT_REMOVED = sa.text("removed_at IS NULL")
ROLES = "role IN ('admin', 'user', 'viewer')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE users DROP CONSTRAINT ck_users_role")
        op.execute(f"ALTER TABLE users ADD CONSTRAINT ck_users_role CHECK ({ROLES})")
    else:
        _users_made_again()
    op.create_index("ix_tokens_expires_at", "tokens", ["expires_at"], unique=False)
    op.create_table(
        "api_tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.CheckConstraint("scope IN ('read', 'submit', 'admin')", name="ck_api_tokens_scope"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_api_tokens_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
        sa.UniqueConstraint("secret_sha256", name="uq_api_tokens_secret_sha256"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_api_tokens_user_id", "api_tokens", ["user_id"], unique=False)
    op.create_index("ix_api_tokens_expires_at", "api_tokens", ["expires_at"], unique=False)


def _users_made_again() -> None:
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
        sa.CheckConstraint(ROLES, name="ck_users_role"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sqlite_autoincrement=True,
    )
    op.execute("INSERT INTO users_again SELECT id, name, role, password_hash, created_at, removed_at FROM users")
    op.drop_table("users")
    op.rename_table("users_again", "users")
    op.create_index("uq_users_name", "users", ["name"], unique=True, sqlite_where=NOT_REMOVED)


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
