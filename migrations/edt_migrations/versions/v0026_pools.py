"""Pools: nodes that another cluster manager gives and takes, and each node that it was asked for.

Nodes of before are of no pool. A migration once merged is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

OF_A_NODE = (
    *("host", "cores", "incarnation", "intent", "launcher", "lost_at", "registered_at", "usage_at"),
    *("pool_id", "only_for", "leaving_why", "removed_at"),
)
"""Columns of a node whose change is in the feed."""

RULES = (
    # name, table, when, the condition that is refused (none: always), what is said
    ("pools_named", "pools", "UPDATE", "NEW.named < OLD.named", "a count of names only grows"),
    (
        "node_requests_end",
        "node_requests",
        "UPDATE",
        "OLD.ended_at IS NOT NULL AND (NEW.ended_at IS NULL OR NEW.ended_at <> OLD.ended_at)",
        "a request ends once",
    ),
    (
        "node_requests_give_up",
        "node_requests",
        "UPDATE",
        "OLD.give_up_at IS NOT NULL AND (NEW.give_up_at IS NULL OR NEW.give_up_at <> OLD.give_up_at)",
        "a request is given up once",
    ),
    (
        "node_requests_delete",
        "node_requests",
        "DELETE",
        "OLD.ended_at IS NULL",
        "a request that is not over is never deleted",
    ),
)


def upgrade() -> None:
    _tables()
    postgresql = op.get_bind().dialect.name == "postgresql"
    number = "BIGINT" if postgresql else "INTEGER"
    # By hand: Alembic adds a reference to a table of SQLite only by copying it, which would drop its triggers.
    op.execute(f"ALTER TABLE nodes ADD COLUMN pool_id {number} CONSTRAINT fk_nodes_pool_id REFERENCES pools (id)")
    op.add_column("nodes", sa.Column("only_for", ID))
    op.add_column("nodes", sa.Column("leaving_why", sa.Text()))
    present = sa.text("removed_at IS NULL")
    op.create_index("ix_nodes_present", "nodes", ["id"], sqlite_where=present, postgresql_where=present)
    for rule in RULES:
        (_postgresql_trigger if postgresql else _sqlite_trigger)(*rule)
    if postgresql:
        _postgresql_feed()
    else:
        _sqlite_feed()


def _tables() -> None:
    op.create_table(
        "pools",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("max_nodes", sa.Integer(), nullable=False),
        sa.Column("max_set", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("min_nodes", sa.Integer(), nullable=False),
        sa.Column("min_set", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("patience_seconds", sa.Double(), nullable=False),
        sa.Column("patience_set", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("idle_seconds", sa.Double(), nullable=False),
        sa.Column("per_job", sa.Boolean(), nullable=False),
        sa.Column("containers", sa.Boolean(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("named", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("trouble", sa.Text()),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("removed_at", sa.Double()),
        sa.CheckConstraint("slots >= 1", name="ck_pools_slots"),
        sa.CheckConstraint("min_nodes >= 0 AND max_nodes >= 0", name="ck_pools_size"),
        sa.CheckConstraint("patience_seconds > 0 AND idle_seconds > 0", name="ck_pools_seconds"),
        sa.CheckConstraint("device IN ('cpu', 'gpu')", name="ck_pools_device"),
        sa.PrimaryKeyConstraint("id", name="pk_pools"),
        sqlite_autoincrement=True,
    )
    present = sa.text("removed_at IS NULL")
    op.create_index("uq_pools_name", "pools", ["name"], unique=True, sqlite_where=present, postgresql_where=present)
    op.create_table(
        "node_requests",
        sa.Column("id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("job_id", ID),
        sa.Column("first", sa.Boolean(), nullable=False),
        sa.Column("group_size", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), server_default="asked", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double()),
        sa.Column("granted_at", sa.Double()),
        sa.Column("give_up_at", sa.Double()),
        sa.Column("give_up_why", sa.Text()),
        sa.Column("refused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("ended_reason", sa.Text()),
        sa.Column("oom", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint(
            "state IN ('asked', 'refused', 'pending', 'running', 'ended')", name="ck_node_requests_state"
        ),
        sa.CheckConstraint("group_size >= 0", name="ck_node_requests_group_size"),
        sa.CheckConstraint("(give_up_at IS NULL) = (give_up_why IS NULL)", name="ck_node_requests_given_up"),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (ended_reason IS NULL) AND (ended_at IS NULL) = (state <> 'ended')",
            name="ck_node_requests_over",
        ),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_node_requests_pool_id"),
        sa.PrimaryKeyConstraint("id", name="pk_node_requests"),
        sa.UniqueConstraint("node", name="uq_node_requests_node"),
        sqlite_autoincrement=True,
    )
    still = sa.text("ended_at IS NULL")
    op.create_index("ix_node_requests_open", "node_requests", ["pool_id"], sqlite_where=still, postgresql_where=still)
    op.create_index("ix_node_requests_ended_at", "node_requests", ["ended_at"], unique=False)
    op.create_index("ix_node_requests_give_up_at", "node_requests", ["give_up_at"], unique=False)


def _sqlite_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    op.execute(
        f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW WHEN {refused} "
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
    )


def _postgresql_trigger(name: str, table: str, when: str, refused: str, said: str) -> None:
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {refused} THEN RAISE EXCEPTION '{said}' USING ERRCODE = 'integrity_constraint_violation'; "
        f"END IF; RETURN {'OLD' if when == 'DELETE' else 'NEW'}; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _sqlite_feed() -> None:
    moved = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in OF_A_NODE)
    op.execute("DROP TRIGGER nodes_changed_update")
    told = "INSERT INTO changes (xid, topic, key, time) VALUES (0, 'node', NEW.id, "
    told += "(julianday('now') - 2440587.5) * 86400.0);"
    op.execute(f"CREATE TRIGGER nodes_changed_update AFTER UPDATE ON nodes FOR EACH ROW WHEN {moved} BEGIN {told} END")


def _postgresql_feed() -> None:
    moved = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in OF_A_NODE)
    op.execute("DROP TRIGGER nodes_changed_update ON nodes")
    op.execute(
        f"CREATE TRIGGER nodes_changed_update AFTER UPDATE ON nodes FOR EACH ROW WHEN ({moved}) "
        "EXECUTE FUNCTION record_change_of_id('node')"
    )


def downgrade() -> None:
    raise NotImplementedError("a schema only goes forward: restore a backup instead")
