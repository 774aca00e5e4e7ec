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
from edt_demo.settings import EXAMPLES, FRAMEWORKS, Framework


@pytest.mark.parametrize(
    ("name", "takes"), [("DEMO_FAULT", "'drop' or nothing"), ("FRAMEWORK", "'pytorch' or 'tensorflow'")]
)
def test_a_setting_that_is_not_known_ends_it_with_2_and_one_sentence(tmp_path: Path, name: str, takes: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo")],
        env={**os.environ, "DEVICES": "", "DEMO_FAULT": "", name: "burn"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == f"usage (2): {name}: got 'burn', takes {takes}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_platform_that_does_not_answer_is_told_from_a_training_that_fails() -> None:
    with Client("http://127.0.0.1:9", "admin", "secret") as client:
        assert not client.serves()
        with pytest.raises(DemoFailed, match=r"GET /api/v1/timeline: ") as failure:
            client.timeline()
    assert failure.value.code is ExitCode.PLATFORM


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_what_is_submitted_is_the_script_and_nothing_compiled(framework: Framework) -> None:
    name = framework.script.name
    with tarfile.open(fileobj=BytesIO(packed(framework.script))) as archive:
        assert sorted(archive.getnames()) == [name, f"{name}/main.py"]
