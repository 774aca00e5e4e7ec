"""Copies of a job's code for a new job: by the rules of uploads, whatever the job has left there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edt_scheduler.home.code_copies import Limits, copy_code
from edt_scheduler.home.copying import TooLarge


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The code of a job."""
    folder = tmp_path / "code"
    (folder / "net" / "empty").mkdir(parents=True)
    (folder / "main.py").write_text("print()\n")
    (folder / "net" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "net" / "run.sh").chmod(0o4700)
    return folder


def found(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_folders_and_files_are_copied_with_their_right_to_be_executed(code: Path, tmp_path: Path) -> None:
    copy_code(code, tmp_path / "copy")
    assert found(tmp_path / "copy") == {"main.py", "net", "net/run.sh", "net/empty"}
    assert (tmp_path / "copy/main.py").read_text() == "print()\n"
    assert (tmp_path / "copy/net/run.sh").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "copy/main.py").stat().st_mode & 0o111 == 0


def test_links_pipes_and_compiled_files_are_left_out(code: Path, tmp_path: Path) -> None:
    secret = tmp_path / "private"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (code / "folder").symlink_to(secret)
    (code / "file").symlink_to(secret / "key")
    os.mkfifo(code / "pipe")
    (code / "net" / "__pycache__").mkdir()
    copy_code(code, tmp_path / "copy")
    assert found(tmp_path / "copy") == {"main.py", "net", "net/run.sh", "net/empty"}


def test_a_folder_that_is_missing_or_a_link_is_no_code(code: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(code)
    for path in (tmp_path / "link", tmp_path / "nowhere", code / "main.py"):
        with pytest.raises(FileNotFoundError):
            copy_code(path, tmp_path / "copy")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(members=3), "more than 3 files and folders"),
        (Limits(depth=1), "more than 1 folders inside each other"),
        (Limits(file_bytes=9), r"'run\.sh' has 10 bytes, at most 9 are copied"),
        (Limits(total_bytes=17), "all its files together have more than 17 bytes"),
    ],
)
def test_what_exceeds_a_limit_of_uploads_is_not_copied(
    code: Path, tmp_path: Path, limits: Limits, message: str
) -> None:
    copy_code(code, tmp_path / "whole", Limits(members=4, depth=2, file_bytes=10, total_bytes=18))
    with pytest.raises(TooLarge, match=message):
        copy_code(code, tmp_path / "copy", limits)


def test_a_file_with_a_hole_counts_with_its_length(code: Path, tmp_path: Path) -> None:
    os.truncate(code / "main.py", 1 << 40)
    with pytest.raises(TooLarge, match=r"'main\.py' has 1099511627776 bytes"):
        copy_code(code, tmp_path / "copy")


def test_a_copy_leaves_a_reserve_on_the_disk(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edt_scheduler.home.copying.RESERVE_BYTES", 1 << 62)
    with pytest.raises(OSError) as error:
        copy_code(code, tmp_path / "copy")
    assert error.value.errno == errno.ENOSPC


def test_where_the_kernel_copies_nothing_the_bytes_are_the_same(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(errno.EXDEV, "another file system")

    (code / "main.py").write_bytes(os.urandom(3_000_000))
    monkeypatch.setattr(os, "copy_file_range", cannot)
    copy_code(code, tmp_path / "copy")
    assert (tmp_path / "copy/main.py").read_bytes() == (code / "main.py").read_bytes()
