"""Lists that come in pages, read to their end."""

from __future__ import annotations

from typing import Any

import httpx


def every(client: httpx.Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        answer = client.get(path, params=params)
        answer.raise_for_status()
        page = answer.json()
        found += page["items"]
        if page["next"] is None:
            return found
        params["cursor"] = page["next"]
