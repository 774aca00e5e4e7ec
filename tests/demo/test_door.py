"""The demo as it is typed, as far as it needs no platform."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from edt_demo.client import Client, packed
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.settings import DIGITS, EXAMPLES


def test_a_setting_that_is_not_known_ends_it_with_2_and_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo")],
        env={**os.environ, "DEMO_FAULT": "burn", "DEVICES": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == "usage (2): DEMO_FAULT: got 'burn', takes 'drop' or nothing\n"
    assert list(tmp_path.iterdir()) == []


def test_a_platform_that_does_not_answer_is_told_from_a_training_that_fails() -> None:
    with Client("http://127.0.0.1:9", "admin", "secret") as client:
        assert not client.serves()
        with pytest.raises(DemoFailed, match=r"GET /api/v1/timeline: ") as failure:
            client.timeline()
    assert failure.value.code is ExitCode.PLATFORM


def test_what_is_submitted_is_the_script_and_nothing_compiled() -> None:
    with tarfile.open(fileobj=BytesIO(packed(DIGITS))) as archive:
        assert sorted(archive.getnames()) == ["digits", "digits/main.py"]
