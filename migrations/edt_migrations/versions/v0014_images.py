"""Which container images jobs may name, which nodes have them ready, and nodes whose engines no other node reaches.

Room: migrations. A migration once merged is never edited. Images that jobs of administrators have named are allowed, as
they would be now. Docker's nodes begin as before: reachable.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("nodes", sa.Column("alone", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_table(
        "images",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("allowed_by", ID, nullable=False),
        sa.Column("allowed_at", sa.Double(), nullable=False),
        sa.Column("everywhere", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["allowed_by"], ["users.id"], name="fk_images_allowed_by"),
        sa.PrimaryKeyConstraint("id", name="pk_images"),
        sa.UniqueConstraint("name", name="uq_images_name"),
    )
    op.create_table(
        "image_pulls",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("done_at", sa.Double()),
        sa.Column("error", sa.Text()),
        sa.ForeignKeyConstraint(["image"], ["images.name"], name="fk_image_pulls_image"),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_image_pulls_node_id"),
        sa.PrimaryKeyConstraint("node_id", "image", name="pk_image_pulls"),
    )
    connection = op.get_bind()
    used = connection.execute(
        sa.text(
            "SELECT jobs.image, jobs.user_id, min(jobs.created_at) FROM jobs JOIN users ON users.id = jobs.user_id "
            "WHERE jobs.image IS NOT NULL AND users.role = 'admin' GROUP BY jobs.image, jobs.user_id ORDER BY 3"
        )
    ).all()
    allowed: set[str] = set()
    for image, user_id, at in used:
        name = _canonical(image)
        if name not in allowed:
            allowed.add(name)
            connection.execute(
                sa.text(
                    "INSERT INTO images (name, allowed_by, allowed_at, everywhere) VALUES (:name, :user, :at, :no)"
                ),
                {"name": name, "user": user_id, "at": at, "no": False},
            )


def _canonical(name: str) -> str:
    """As ``edt_scheduler.images`` had it then."""
    for default in ("docker.io/", "index.docker.io/", "library/"):
        name = name.removeprefix(default)
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
