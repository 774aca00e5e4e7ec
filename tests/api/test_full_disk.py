"""The server's disk is full: an answer that says so, and nothing left of what was sent."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from support.served_api import ARGS, EXECS, served, tar
from support.small_disk import small_disk

pytestmark = pytest.mark.tmpfs_mount
LARGE = b"#" * 90_000


def submit(client: httpx.Client, code: bytes) -> httpx.Response:
    return client.post(EXECS, params={"args": ARGS}, files={"file": ("x.tar", code)})


def is_refused(answer: httpx.Response) -> bool:
    sentence = "Error 507: the server's disk is full: tell its administrator\n"
    return (answer.status_code, answer.text) == (507, sentence)


def test_an_upload_without_room_is_a_507_and_with_room_it_is_a_job(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", 8 << 20) as disk, served(tmp_path / "home") as api:
        client = api.client("ana")
        disk.fill()
        assert is_refused(submit(client, tar({"main.py": LARGE}, mode="w")))
        assert client.get(EXECS).json() == []
        disk.make_room()
        assert submit(client, tar({"main.py": LARGE}, mode="w")).status_code == 200
        assert list(api.settings.staged.iterdir()) == []


def test_an_archive_that_does_not_fit_unpacked_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home" / "staged", 1 << 18) as disk, served(tmp_path / "home") as api:
        code = tar({"main.py": LARGE, **{f"{number}.py": LARGE for number in range(4)}})
        assert len(code) < 10_000
        assert is_refused(submit(api.client("ana"), code))
        assert list(disk.folder.iterdir()) == []
