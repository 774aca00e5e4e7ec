"""What `edt up` writes, where it cannot be written."""

from __future__ import annotations

import io
import sys

import pytest

from edt_cli.up.services import Console


class Disk(io.StringIO):
    """Standard output that is a file on a disk that is full at times."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_that_a_full_disk_does_not_take_are_counted_and_the_next_ones_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    monkeypatch.setattr(sys, "stdout", disk)
    console = Console()
    console.say("up", "one")
    disk.full = True
    console.say("up", "two")
    console.say("up", "three")
    disk.full = False
    console.say("up", "four")
    assert [line.split(" | ")[-1] for line in disk.getvalue().splitlines()] == [
        "one",
        "[2 lines are missing: the disk was full]",
        "four",
    ]
