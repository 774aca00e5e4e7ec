"""How busy slots were by the hour was counted and never shown: the table goes, and how far it was counted.

A migration once merged is never edited.
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("slot_hours")
    op.execute("DELETE FROM rolled_up WHERE what = 'slot_hours'")


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
