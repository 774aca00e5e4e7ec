"""The file that says who hosts an attempt lies where the job itself could write: it may hold anything."""

from __future__ import annotations

import json
import logging
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edt_runner.supervisor.contact import HOME_FILE, Contact
from edt_runner.supervisor.engines import Engines
from edt_runner.supervisor.home import Home
from support.small_disk import small_disk
from support.training import letter_for


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (json.dumps({"fence": 1, "node": "there", "address": "there:1"}), "there:1"),
        (json.dumps({"fence": 2, "node": "there", "address": "there:1"}), None),
        ('{"fence": 1}', None),
        ("[1]", None),
        ("not JSON", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_what_cannot_be_read_names_no_home(tmp_path: Path, text: str, address: str | None) -> None:
    letter = letter_for(tmp_path, "conv")
    home = Path(letter.checkpoint_dir) / HOME_FILE
    home.parent.mkdir(parents=True)
    home.write_text(text)
    with selectors.DefaultSelector() as selector:
        engines = Engines(letter, selector, list)
        contact = Contact(letter, selector, list, engines, obey=lambda message: None, alone=lambda: None)
        assert contact._read_home() == address


@contextmanager
def hosting(tmp_path: Path, checkpoints: Path) -> Iterator[Contact]:
    """A supervisor whose coordinator is about to listen."""
    letter = replace(letter_for(tmp_path, "conv"), checkpoint_dir=str(checkpoints))
    Path(letter.spool_dir).mkdir(parents=True, exist_ok=True)
    with selectors.DefaultSelector() as selector:
        engines = Engines(letter, selector, list)
        contact = Contact(letter, selector, list, engines, obey=lambda message: None, alone=lambda: None)
        contact._home_before = contact._read_home()
        contact.home = Home(letter, selector, list, recovering=False)
        yield contact
        contact.home.close()


@pytest.mark.tmpfs_mount
@pytest.mark.parametrize("before", [None, "there:1"])
def test_who_hosts_is_written_when_the_disk_has_room_and_its_failure_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        if before is not None:
            (disk.folder / HOME_FILE).write_text(json.dumps({"fence": 1, "node": "there", "address": before}))
        with hosting(tmp_path, disk.folder) as contact:
            disk.fill()
            contact.listens()
            for _ in range(3):
                contact.heed_other_homes()
            assert contact._read_home() == before
            assert caplog.messages == ["the file that says who hosts cannot be written: No space left on device"]
            disk.make_room()
            contact.heed_other_homes()
            assert contact._read_home() == contact.address is not None


@pytest.mark.tmpfs_mount
def test_a_successor_is_heeded_though_the_disk_was_full_when_this_one_began_to_host(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk, hosting(tmp_path, disk.folder) as contact:
        disk.fill()
        contact.listens()
        disk.make_room()
        (disk.folder / HOME_FILE).write_text(json.dumps({"fence": 1, "node": "there", "address": "there:2"}))
        contact.heed_other_homes()
        assert contact._read_home() == contact._succeeded_by == "there:2"
