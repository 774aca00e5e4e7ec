"""Writing on full disks: whole pieces or none, news once, logs that wait. The disks are real."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edt_contract.durable import AppendFile, News, Outage, PatientLog, disk_error, sweep_drafts, write_whole
from edt_runner.supervisor.agent_link import Storage
from edt_runner.supervisor.logs import LogPipe
from support.small_disk import small_disk


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As a disk that is full there: the kernel writes what fits, and then says no."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Outages:
    """Keeps the news; its clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.news: list[News] = []
        self.outage = Outage("logs", self.news.append, clock=lambda: self.now)


KILLED_BEFORE_THE_RENAME = """
import os, pathlib, signal, sys
from edt_contract.durable import write_whole
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_whole(pathlib.Path(sys.argv[1]), "half a life", alone=sys.argv[2] == "alone")
"""


def killed_before_the_rename(path: Path, how: str) -> None:
    command = [sys.executable, "-c", KILLED_BEFORE_THE_RENAME, str(path), how]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


class TestDrafts:
    def test_the_next_writer_takes_the_place_of_what_a_kill_has_left(self, tmp_path: Path) -> None:
        for _ in range(3):
            killed_before_the_rename(tmp_path / "file", "alone")
        assert [path.name for path in tmp_path.iterdir()] == [".file.draft"]
        write_whole(tmp_path / "file", "whole", alone=True)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]
        assert (tmp_path / "file").read_text() == "whole"

    def test_what_lies_in_the_place_of_a_draft_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / ".file.draft").symlink_to(tmp_path / "elsewhere")
        write_whole(tmp_path / "file", "whole", alone=True)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_a_folder_in_the_place_of_a_draft_keeps_nothing_from_being_written(self, tmp_path: Path) -> None:
        (tmp_path / ".file.draft" / "more").mkdir(parents=True)
        write_whole(tmp_path / "file", "whole", alone=True)
        assert (tmp_path / "file").read_text() == "whole"
        assert {path.name for path in tmp_path.iterdir()} == {"file", ".file.draft"}

    @pytest.mark.parametrize("sweep", [lambda path: write_whole(path, "whole"), lambda path: sweep_drafts(path.parent)])
    def test_where_several_may_write_old_drafts_are_swept_and_new_ones_left(
        self, tmp_path: Path, sweep: Callable[[Path], None]
    ) -> None:
        for _ in range(2):
            killed_before_the_rename(tmp_path / "file", "several")
        old, new = tmp_path.iterdir()
        mine = [tmp_path / name for name in (".mine", ".file.20250101", ".file.draft")]
        for path in mine:
            path.touch()
        folder = tmp_path / ".file.00000000.draft"
        folder.mkdir()
        for path in (old, folder, *mine):
            os.utime(path, (time.time() - 2 * 86_400,) * 2)
        sweep(tmp_path / "file")
        assert not old.exists()
        assert all(path.exists() for path in mine)
        assert new.exists()


class TestAppendFile:
    def test_a_piece_that_fits_by_half_leaves_nothing(self, tmp_path: Path) -> None:
        file = AppendFile(tmp_path / "file")
        file.append(b"whole\n")
        with files_of_at_most(10), pytest.raises(OSError, match="File too large"):
            file.append(b"by half\n")
        assert (tmp_path / "file").read_bytes() == b"whole\n"
        file.append(b"next\n")
        assert (tmp_path / "file").read_bytes() == b"whole\nnext\n"

    def test_it_goes_on_behind_what_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"one\n")
        file = AppendFile(tmp_path / "file")
        file.append(b"two\n", durable=True)
        file.close()
        assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"

    @pytest.mark.tmpfs_mount
    def test_room_that_was_reserved_is_there_when_the_disk_is_full(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", 1 << 18) as disk:
            file = AppendFile(disk.folder / "file")
            file.open()
            file.reserve(1 << 16)
            disk.fill()
            file.append(b"x" * 60_000)
            with pytest.raises(OSError, match="No space left"):
                file.reserve(1 << 16)
            file.close()

    @pytest.mark.tmpfs_mount
    def test_room_that_was_not_used_is_given_back(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", 1 << 18) as disk:
            file = AppendFile(disk.folder / "file")
            file.append(b"x")
            file.reserve(1 << 16)
            file.close()
            assert (disk.folder / "file").stat().st_blocks <= 8


class TestOutage:
    def test_its_beginning_and_its_end_are_told_once(self) -> None:
        kept = Outages()
        for now in (1.0, 2.0, 3.0):
            kept.now = now
            kept.outage.failed(OSError(errno.ENOSPC, "No space left on device", "/a/path"))
        kept.now = 5.0
        kept.outage.worked()
        kept.outage.worked()
        assert list(map(str, kept.news)) == [
            "logs cannot be written: No space left on device",
            "logs can be written again, after 4 s",
        ]

    def test_a_disk_that_fails_and_works_in_turns_is_told_of_once_a_minute(self) -> None:
        kept = Outages()
        for second in range(600):
            kept.now = float(second)
            kept.outage.failed("full") if second % 2 else kept.outage.worked()
        assert 18 <= len(kept.news) <= 22
        assert [bool(news.error) for news in kept.news] == [True, False] * (len(kept.news) // 2)

    def test_an_outage_that_lasts_is_told_though_another_was_a_moment_ago(self) -> None:
        kept = Outages()
        kept.outage.failed("full")
        kept.outage.worked()
        for second in range(70):
            kept.now = 1.0 + second
            kept.outage.failed("full")
        assert [bool(news.error) for news in kept.news] == [True, False, True]


class TestPatientLog:
    def test_what_a_full_disk_did_not_take_is_written_in_order_when_there_is_room(self, tmp_path: Path) -> None:
        log = PatientLog(tmp_path / "log")
        log.write(b"one\n")
        with files_of_at_most(6):
            log.write(b"two\n")
            log.write(b"three\n")
            assert log.holds and log.error is not None
        log.write(b"four\n")
        assert (tmp_path / "log").read_bytes() == b"one\ntwo\nthree\nfour\n"
        assert not log.holds and log.error is None

    def test_what_is_too_much_to_hold_is_lost_and_the_log_says_how_much(self, tmp_path: Path) -> None:
        log = PatientLog(tmp_path / "log", most=6)
        with files_of_at_most(0):
            log.write(b"held\n")
            log.write(b"lost in part\n")
            log.write(b"lost\n")
        assert log.flush()
        log.write(b"after\n")
        text = (tmp_path / "log").read_text()
        assert text == "held\nl\n[edt: 17 bytes are missing here: File too large]\nafter\n"

    @pytest.mark.tmpfs_mount
    def test_it_is_turned_over_though_the_disk_was_full_at_that_moment(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", 1 << 18) as disk:
            log = PatientLog(disk.folder / "x.out", limit=14)
            log.write(b"0123456789ab")
            disk.fill()
            log.write(b"next")
            log.write(b"more")
            disk.make_room()
            log.write(b"end")
            log.close()
            assert (disk.folder / "x.out.1").read_bytes() == b"0123456789ab"
            assert (disk.folder / "x.out").read_bytes() == b"nextmoreend"

    def test_its_folder_is_made_once_and_not_again_where_somebody_has_taken_it_away(self, tmp_path: Path) -> None:
        log = PatientLog(tmp_path / "log" / "x.out")
        log.write(b"x")
        (tmp_path / "log").rename(tmp_path / "elsewhere")
        log.write(b"y")
        log.close()
        assert (tmp_path / "elsewhere" / "x.out").read_bytes() == b"xy"
        assert not (tmp_path / "log").exists()


class TestWhatTheDiskSaid:
    def test_it_is_found_behind_what_a_library_made_of_it(self, tmp_path: Path) -> None:
        try:
            try:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            except OSError as error:
                raise RuntimeError("unexpected pos 64") from error
        except RuntimeError as error:
            found = disk_error(error, tmp_path)
        assert found is not None and found.errno == errno.EDQUOT

    def test_an_error_on_a_disk_with_room_is_not_its(self, tmp_path: Path) -> None:
        assert disk_error(RuntimeError("unexpected pos 64"), tmp_path) is None
        assert disk_error(PermissionError(errno.EACCES, "Permission denied"), tmp_path) is None


class TestLogsOfChildren:
    """As their supervisor sees to them."""

    @pytest.mark.tmpfs_mount
    def test_the_last_words_of_a_child_that_ended_on_a_full_disk_are_written_when_there_is_room(
        self, tmp_path: Path
    ) -> None:
        errors: list[str] = []
        storage = Storage(lambda kind, body: errors.append(body["error"]))
        with small_disk(tmp_path / "disk", 1 << 18) as disk:
            pipes = [LogPipe(disk.folder / f"1.{stream}", 1 << 20) for stream in ("out", "err")]
            disk.fill()
            for pipe in pipes:
                os.write(pipe.writer, b"last words")
                os.close(pipe.writer)
                pipe.pump()
            storage.look_at_logs([pipe.log for pipe in pipes])
            for pipe in pipes:
                pipe.catch_up()
                pipe.close()
            for _ in range(3):
                storage.look_at_logs([])
            assert errors == ["No space left on device"]
            disk.make_room()
            storage.look_at_logs([])
            assert errors == ["No space left on device", ""]
            assert [(disk.folder / f"1.{stream}").read_text() for stream in ("out", "err")] == ["last words"] * 2
            assert not storage._ended
