"""What a driver makes of a checkpoint, and when it takes its coordinator for gone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edt_contract.encoding import to_json_object
from edt_runner import driver
from edt_runner.adapter import State
from edt_runner.checkpoints import checkpoint
from edt_runner.driver import Driver
from edt_runner.protocol.data import ReplicaHistory


def resumed(monkeypatch: pytest.MonkeyPatch, folder: Path, **manifest: Any) -> Driver:
    """A driver that has found a checkpoint of offset 8 with this manifest."""
    whole = {"fence": 1, "identity": {"epochs": 1}, "meta": {}, "metric_sums": {}, "threads": 4, **manifest}
    checkpoint.write(folder, 8, whole, lambda path: path.write_bytes(b"state") and None)
    monkeypatch.setattr(driver, "read_state", lambda *given: None)
    own = object.__new__(Driver)
    schedule = SimpleNamespace(steps_before=lambda offset: offset, steps=10, length=10)
    own._training = cast(Any, SimpleNamespace(identity=lambda arguments: {"epochs": 1}, schedule=schedule))
    own._spec = cast(Any, SimpleNamespace(checkpoint_dir=str(folder), arguments=[], epochs=0))
    own._adapter, own._history = cast(Any, SimpleNamespace(export_state=lambda: State({}, {}))), ReplicaHistory()
    own._log = cast(Any, SimpleNamespace(note=print))
    own._resume()
    return own


def test_a_driver_tells_the_position_of_its_checkpoint_apart_from_where_all_were_known_to_be_equal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = ReplicaHistory(several=True, equal_at=6, computing={"threads": 1})
    own = resumed(monkeypatch, tmp_path, replicas=to_json_object(known), computing={"threads": 1})
    assert (own._history, own._resumed_at) == (known, 8)


def test_the_threads_of_a_checkpoint_of_an_earlier_release_are_not_those_that_were_computed_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are those that its agent gave; the script may have set others."""
    own = resumed(monkeypatch, tmp_path, cpu_capability="AVX2")
    assert own._history.computing == {"CPU capability": "AVX2"}


def test_a_socket_in_a_folder_of_another_user_counts_as_there(tmp_path: Path) -> None:
    folder = tmp_path / "of the supervisor"
    folder.mkdir()
    assert not driver._is_there(folder / "socket")
    mode, user = folder.stat().st_mode, os.geteuid()
    folder.chmod(0o700 if user == 0 else 0)
    try:
        if user == 0:
            os.seteuid(65534)
        assert driver._is_there(folder / "socket")
    finally:
        os.seteuid(user)
        folder.chmod(mode)
