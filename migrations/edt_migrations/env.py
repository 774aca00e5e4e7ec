"""Alembic's own entry: runs the steps on the connection it was handed. Room: migrations."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
