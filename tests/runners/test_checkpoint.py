"""Recovery checkpoints: the newest whole one loads, whatever happened to their writers and to the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edt_contract.attempt import FENCE_FILE
from edt_runner.checkpoints import checkpoint
from edt_runner.errors import CheckpointError
from support.small_disk import small_disk

_FACTS = {"fence": 1, "metric_sums": {"loss": 0.25}, "meta": {"groups": [{"lr": 0.1}]}}


def state(offset: int) -> bytes:
    """What the checkpoint of this position must hold."""
    return hashlib.sha256(str(offset).encode()).digest() * 2000


def save(folder: Path, offset: int, fence: int = 1, who: str = "5") -> Path:
    def write_state(path: Path) -> None:
        path.write_bytes(state(offset))

    return checkpoint.write(folder, offset, {**_FACTS, "fence": fence}, write_state, who=who)


def load(folder: Path) -> int:
    """Position of the newest whole checkpoint, whose contents are looked at; 0: there is none."""
    found = checkpoint.newest(folder)
    if found is None:
        return 0
    assert found.state_file.read_bytes() == state(found.offset)
    assert found.manifest["metric_sums"] == {"loss": 0.25}
    return found.offset


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_three_are_kept_and_the_latest_is_named(tmp_path: Path) -> None:
    for offset in range(1, 6):
        save(tmp_path, offset)
    assert names(tmp_path) == ["at-0000000003", "at-0000000004", "at-0000000005", "latest"]
    assert (tmp_path / "latest").read_text() == "at-0000000005\n"
    assert load(tmp_path) == 5


# ── killed writers ────────────────────────────────────────────────────────────────────────────────────────────────
_WRITERS = """
import os, random, shutil, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_checkpoint import load, save
folder, mode = Path(sys.argv[2]), sys.argv[3]
os.fsync = lambda handle: None  # a kill leaves what the kernel has, and this test is not to wait for a disk

def die_at_line(number):
    left = number
    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.endswith(("/checkpoint.py", "/shutil.py")):
            return None
        if event == "line":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

if mode == "line by line":
    status, number = 1, 0
    while status:
        number += 1
        place = folder / str(number)
        for offset in (1, 2, 3):
            save(place, offset)
        if not (pid := os.fork()):
            die_at_line(number)
            save(place, 4)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
        assert load(place) in (3, 4), number
        save(place, 4, who="6")
        assert load(place) == 4, number
        save(place, 5, who="6")
        left = sorted(os.listdir(place))
        assert left == [f"at-000000000{offset}" for offset in (3, 4, 5)] + ["latest"], (number, left)
        shutil.rmtree(place)
    print(number)
elif mode == "at random":
    def took(offset):
        began = time.monotonic()
        save(folder, offset)
        return time.monotonic() - began

    longest = max(0.01, 5 * min(map(took, (1, 2, 3))))  # however slow the disk and the machine are
    chance, newest, kills = random.Random(3), 3, 0
    while kills < 100 or newest <= 20:  # a writer may be killed before it has had any time
        kills += 1
        if not (pid := os.fork()):
            while True:
                newest += 1
                save(folder, newest)
        time.sleep(chance.uniform(0, longest))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        now = load(folder)
        assert now >= newest
        newest = now
    print(newest)
else:
    for offset in range(1, 4):
        save(folder, offset)
"""


def _write(folder: Path, mode: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which forks: this one may have threads."""
    command = [sys.executable, "-c", _WRITERS, str(Path(__file__).parent), str(folder), mode]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        command, env={**os.environ, **environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def test_a_writer_killed_at_any_line_leaves_the_newest_whole_one(tmp_path: Path) -> None:
    """SIGKILL at the first line that write() executes, then at the second, and so on to its end; the engine that
    comes after writes the same position and tidies up."""
    done = _write(tmp_path, "line by line")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_a_hundred_kills_at_random_moments_lose_no_checkpoint(tmp_path: Path) -> None:
    """Each writer goes on from the newest whole one, until twenty have been written."""
    done = _write(tmp_path, "at random")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_the_crash_point_lies_between_the_draft_and_the_rename(tmp_path: Path) -> None:
    done = _write(tmp_path, "in order", EDT_CRASH="engine.checkpoint@3#5")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert load(tmp_path) == 2
    draft = tmp_path / ".at-0000000003.1-5.tmp"
    assert sorted(path.name for path in draft.iterdir()) == ["manifest.json", "state.safetensors"]
    save(tmp_path, 3, who="6")
    save(tmp_path, 4, who="6")
    assert load(tmp_path) == 4 and not draft.exists()


# ── torn files ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
def test_a_flipped_bit_or_a_missing_end_is_passed_over_for_the_one_before(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1)
    victim = save(tmp_path, 2) / file
    whole, chance = victim.read_bytes(), random.Random(5)
    for position in range(0, len(whole), max(1, len(whole) // 200)):
        torn = bytearray(whole)
        torn[position] ^= 1 << chance.randrange(8)
        victim.write_bytes(torn)
        assert load(tmp_path) in ((1,) if file == "state.safetensors" else (1, 2))  # white space may change
        victim.write_bytes(whole[:position])
        notes: list[str] = []
        found = checkpoint.newest(tmp_path, note=notes.append)
        assert found is not None and found.offset == 1
        assert len(notes) == 1 and notes[0].startswith("checkpoint at-0000000002 is passed over: ")
    victim.write_bytes(whole)
    assert load(tmp_path) == 2
    victim.unlink()
    assert load(tmp_path) == 1
    save(tmp_path, 2)
    assert load(tmp_path) == 2


def test_torn_ones_do_not_count_among_the_newest(tmp_path: Path) -> None:
    """Three newer ones are torn: what goes on from the one before must be kept, and they go."""
    for offset in (1, 7, 8, 9):
        (tmp_path / "state").write_bytes(b"")
        if offset > 1:
            path = tmp_path / f"at-{offset:010d}"
            path.mkdir()
            (path / "state.safetensors").write_bytes(b"torn")
        else:
            save(tmp_path, offset)
    assert load(tmp_path) == 1
    save(tmp_path, 2)
    assert load(tmp_path) == 2
    assert [name for name in names(tmp_path) if name.startswith("at-")] == ["at-0000000001", "at-0000000002"]


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A disk that is soon full: a small one where root may mount it, else a limit on each file."""
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "none", folder], capture_output=True, check=False
        ).returncode
    )
    if mounted:
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_leaves_the_whole_ones_and_no_draft(tmp_path: Path) -> None:
    def too_much(path: Path) -> None:
        path.write_bytes(b"0" * 500_000)

    with _small_disk(tmp_path):
        save(tmp_path, 1)
        for offset in (2, 3):
            with pytest.raises(OSError, match=r"No space left|File too large"):
                checkpoint.write(tmp_path, offset, _FACTS, too_much)
        assert names(tmp_path) == ["at-0000000001", "latest"]
        assert save(tmp_path, 4) and load(tmp_path) == 4


@pytest.mark.tmpfs_mount
def test_on_a_full_disk_older_ones_make_room_for_the_next_and_the_newest_stays_until_that_is_whole(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 240_000) as disk:  # three, and no fourth
        for offset in (1, 2, 3):
            save(disk.folder, offset)
        save(disk.folder, 4)
        assert names(disk.folder) == ["at-0000000003", "at-0000000004", "latest"] and load(disk.folder) == 4


@pytest.mark.tmpfs_mount
def test_on_a_full_disk_the_newest_at_which_all_engines_were_equal_makes_no_room(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"0" * 65_000)

    with small_disk(tmp_path / "disk", 240_000) as disk:  # three, and no fourth
        for offset in (1, 2, 3, 4):
            checkpoint.write(disk.folder, offset, _FACTS, write, equal_at=1)
        assert names(disk.folder) == ["at-0000000001", "at-0000000003", "at-0000000004", "latest"]


@pytest.mark.tmpfs_mount
def test_older_ones_stay_where_they_would_not_make_room_enough(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 19) as disk:
        save(disk.folder, 1)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            save(disk.folder, 2)
        assert names(disk.folder) == ["at-0000000001", "latest", "what somebody else has put here"]
        assert load(disk.folder) == 1


def test_a_disk_that_cannot_say_that_it_keeps_the_name_has_not_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the last fsync, which is the folder's: the ones before are kept, and the next try syncs again."""
    for offset in (1, 2, 3):
        save(tmp_path, offset)

    def fail(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), tmp_path.stat()):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            save(tmp_path, 4)
        assert names(tmp_path) == [*(f"at-000000000{offset}" for offset in (1, 2, 3, 4)), "latest"]
    monkeypatch.undo()
    save(tmp_path, 4)
    assert load(tmp_path) == 4 and "at-0000000001" not in names(tmp_path)


# ── several writers ───────────────────────────────────────────────────────────────────────────────────────────────
def test_an_attempt_that_is_shut_out_writes_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1, fence=1)
    (tmp_path / FENCE_FILE).write_text("2")
    before = names(tmp_path)
    with pytest.raises(CheckpointError, match="attempt 1 is shut out: attempt 2 writes here now"):
        save(tmp_path, 2, fence=1)
    assert names(tmp_path) == before
    save(tmp_path, 3, fence=2)
    assert load(tmp_path) == 3


def test_an_attempt_that_is_shut_out_while_it_writes_renames_nothing(tmp_path: Path) -> None:
    def slowly(path: Path) -> None:
        path.write_bytes(state(1))
        (tmp_path / FENCE_FILE).write_text("2\n")

    with pytest.raises(CheckpointError, match="shut out"):
        checkpoint.write(tmp_path, 1, _FACTS, slowly)
    assert names(tmp_path) == [FENCE_FILE]


def test_a_fence_that_cannot_be_read_lets_nothing_be_written(tmp_path: Path) -> None:
    (tmp_path / FENCE_FILE).write_text("")
    with pytest.raises(CheckpointError, match="fence cannot be read"):
        save(tmp_path, 1)


def test_two_engines_at_one_position_write_one_checkpoint(tmp_path: Path) -> None:
    def slowly(path: Path) -> None:
        path.write_bytes(state(1))
        save(tmp_path, 1, who="6")

    assert checkpoint.write(tmp_path, 1, _FACTS, slowly, who="5") == save(tmp_path, 1)
    assert load(tmp_path) == 1 and names(tmp_path) == ["at-0000000001", "latest"]


def test_what_another_engine_puts_in_place_after_one_has_looked_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(place: Path) -> bool:
        monkeypatch.undo()
        save(place.parent, 1, who="6")
        return False

    def write_state(path: Path) -> None:
        assert load(tmp_path) == 1  # else it would be lost if this engine were killed now
        path.write_bytes(state(1))

    monkeypatch.setattr(checkpoint, "is_whole", not_yet)
    checkpoint.write(tmp_path, 1, _FACTS, write_state, who="5")
    assert load(tmp_path) == 1 and names(tmp_path) == ["at-0000000001", "latest"]


def test_drafts_of_killed_writers_go_with_the_next_checkpoint_or_attempt(tmp_path: Path) -> None:
    for name in (".at-0000000002.1-5.tmp", ".at-0000000009.1-5.tmp", ".at-0000000009.2-7.tmp"):
        (tmp_path / name).mkdir()
    save(tmp_path, 3, fence=2)
    assert names(tmp_path) == [".at-0000000009.2-7.tmp", "at-0000000003", "latest"]


def test_setting_aside_leaves_the_fence_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    save(folder, 1)
    (folder / FENCE_FILE).write_text("1")
    assert checkpoint.set_aside(folder) == tmp_path / "checkpoint.1"
    assert names(folder) == [FENCE_FILE] and load(tmp_path / "checkpoint.1") == 1
    save(folder, 1)
    assert checkpoint.set_aside(folder) == tmp_path / "checkpoint.2"


def test_the_newest_at_which_all_engines_were_equal_is_kept_and_later_ones_can_be_given_up(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"state")

    for offset in range(1, 9):
        checkpoint.write(tmp_path, offset, _FACTS, write, equal_at=2 if offset > 2 else None)
    assert [name for name in names(tmp_path) if name.startswith("at-")] == [
        f"at-{offset:010d}" for offset in (2, 6, 7, 8)
    ]
    found = checkpoint.newest(tmp_path, most=5)
    assert found is not None and found.offset == 2
    checkpoint.forget_after(tmp_path, 2)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.offset == 2


def test_a_checkpoint_of_format_2_is_read_by_the_names_of_now() -> None:
    found = checkpoint.newest(Path(__file__).parent / "checkpoints" / "format2")
    assert found is not None and found.offset == 3
    assert found.manifest["identity"]["micro_batches"] == 4
    assert "logical_workers" not in found.manifest["identity"]
    assert found.manifest["metric_sums"] and "tally" not in found.manifest
