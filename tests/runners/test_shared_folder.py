"""The file that names an attempt's head node lies where the job itself could write: it may hold anything."""

from __future__ import annotations

import json
import logging
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edt_runner.supervisor.coordinator_link import CoordinatorLink, HeadNode
from edt_runner.supervisor.engines import Engines
from edt_runner.supervisor.shared_folder import HEAD_NODE_FILE, SharedFolder
from support.small_disk import small_disk
from support.training import spec_for


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
def test_what_cannot_be_read_names_no_head_node(tmp_path: Path, text: str, address: str | None) -> None:
    spec = spec_for(tmp_path, "conv")
    place = Path(spec.checkpoint_dir) / HEAD_NODE_FILE
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert SharedFolder(spec).head_node() == address


@contextmanager
def head_node(tmp_path: Path, checkpoints: Path) -> Iterator[CoordinatorLink]:
    """A supervisor whose coordinator is about to listen."""
    spec = replace(spec_for(tmp_path, "conv"), checkpoint_dir=str(checkpoints))
    Path(spec.spool_dir).mkdir(parents=True, exist_ok=True)
    with selectors.DefaultSelector() as selector:
        engines = Engines(spec, selector)
        link = CoordinatorLink(spec, selector, engines, receive=lambda message: None, alone=lambda: None)
        link._named_before = SharedFolder(spec).head_node()
        link.head_node = HeadNode(spec, selector, recovering=False)
        yield link
        link.head_node.close()


@pytest.mark.tmpfs_mount
@pytest.mark.parametrize("before", [None, "there:1"])
def test_the_head_node_is_written_when_the_disk_has_room_and_a_failure_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    with small_disk(tmp_path / "disk", 1 << 18) as disk:
        if before is not None:
            (disk.folder / HEAD_NODE_FILE).write_text(json.dumps({"fence": 1, "node": "there", "address": before}))
        with head_node(tmp_path, disk.folder) as link:
            disk.fill()
            link.coordinator_listens()
            for _ in range(3):
                link.look_for_successor()
            assert link.folder.head_node() == before
            assert caplog.messages == ["the file that names the head node cannot be written: No space left on device"]
            disk.make_room()
            link.look_for_successor()
            assert link.folder.head_node() == link.address is not None


@pytest.mark.tmpfs_mount
def test_a_successor_is_found_though_the_disk_was_full_when_this_one_became_the_head_node(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 18) as disk, head_node(tmp_path, disk.folder) as link:
        disk.fill()
        link.coordinator_listens()
        disk.make_room()
        (disk.folder / HEAD_NODE_FILE).write_text(json.dumps({"fence": 1, "node": "there", "address": "there:2"}))
        link.look_for_successor()
        assert link.folder.head_node() == link._successor == "there:2"
