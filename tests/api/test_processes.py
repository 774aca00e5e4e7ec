"""What computes for long does so in other processes, which give way to all else and end with the API."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edt_api.concurrency import Processes
from edt_api.errors import ArchiveRefused
from edt_api.submissions.archives import unpack_file
from edt_contract.processes import start_time
from edt_scheduler.errors import Unavailable
from support.served_api import tar
from support.waiting import until

A_PARENT = """
import asyncio, os, time
from edt_api.concurrency import Processes
print(asyncio.run(Processes("test", 1, "os").run(os.getpid)), flush=True)
time.sleep(60)
"""


@pytest.fixture
def one() -> Processes:
    return Processes("what the test asks", 1, "edt_api.submissions.archives")


def test_what_is_computed_there_takes_what_others_leave_of_the_processor(one: Processes) -> None:
    async def asked() -> tuple[int, int]:
        return await one.run(os.getpid), await one.run(os.getpriority, os.PRIO_PROCESS, 0)

    process, priority = asyncio.run(asked())
    assert process != os.getpid()
    assert priority == max(10, os.getpriority(os.PRIO_PROCESS, 0))


def test_a_refusal_arrives_as_it_was_made(one: Processes, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(tar({"../main.py": "print(1)\n"}))
    with pytest.raises(ArchiveRefused) as refused:
        asyncio.run(one.run(unpack_file, upload, tmp_path / "into", "main.py"))
    assert str(refused.value) == "the upload is refused: '../main.py': its name leads out of its folder"
    assert refused.value.member == "../main.py"
    assert not (tmp_path / "into").exists()


def test_where_a_process_dies_its_caller_is_told_to_ask_again_and_the_next_has_a_new_one(one: Processes) -> None:
    before = asyncio.run(one.run(os.getpid))
    with pytest.raises(Unavailable, match=r"at work on what the test asks has died"):
        asyncio.run(one.run(os._exit, 1))
    assert asyncio.run(one.run(os.getpid)) not in {before, os.getpid()}


def test_they_end_with_their_parent_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", A_PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert start_time(child) is not None
        parent.send_signal(signal.SIGKILL)
    until(lambda: start_time(child) is None)
