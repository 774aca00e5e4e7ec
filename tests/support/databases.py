"""Which databases a file of tests runs on."""

from __future__ import annotations

from typing import Any

import pytest

SQLITE_FIRST = ("sqlite", pytest.param("postgresql", marks=pytest.mark.extended))
"""Both, with PostgreSQL in the second tier only."""


def sqlite_first() -> Any:
    """The fixture ``database_url`` of a file about decisions, whose queries other files of the first tier ask
    PostgreSQL, at least in part. Files about queries themselves run on both in the first tier."""

    @pytest.fixture(params=SQLITE_FIRST)
    def database_url(request: pytest.FixtureRequest) -> str:
        url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
        return url

    return database_url
