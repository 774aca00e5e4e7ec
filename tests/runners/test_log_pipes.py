"""The last output of a child that is gone is read, and nothing waits for processes that the child has left behind."""

from __future__ import annotations

import fcntl
import os
import resource
import selectors
import subprocess
import time

import pytest

from edt_runner.supervisor import logs


@pytest.mark.timeout(20)
def test_output_that_never_ends_does_not_hold_up_the_end_of_the_child_that_began_it(tmp_path):
    [pipe, _] = logs.open_pipes(str(tmp_path), "rank-0")
    left_behind = [subprocess.Popen(["yes"], stdout=pipe.writer, stderr=subprocess.DEVNULL) for _ in range(4)]
    os.close(pipe.writer)
    time.sleep(0.2)
    logs.end([pipe], selectors.DefaultSelector())
    for process in left_behind:
        process.wait()
    assert (tmp_path / "rank-0.out").stat().st_size <= 1 << 18


def test_all_that_a_child_wrote_before_its_end_is_in_its_log(tmp_path):
    [pipe, _] = logs.open_pipes(str(tmp_path), "rank-0")
    os.write(pipe.writer, b"x" * 65536)
    logs.end([pipe], selectors.DefaultSelector())
    os.close(pipe.writer)
    assert (tmp_path / "rank-0.out").stat().st_size == 65536


def test_a_pipe_may_have_any_number_as_descriptor(tmp_path):
    """``select.select`` takes none above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        [pipe, _] = logs.open_pipes(str(tmp_path), "rank-0")
        low, pipe.reader = pipe.reader, fcntl.fcntl(pipe.reader, fcntl.F_DUPFD_CLOEXEC, 1024)
        os.close(low)
        os.write(pipe.writer, b"last")
        logs.end([pipe], selectors.DefaultSelector())
        os.close(pipe.writer)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (tmp_path / "rank-0.out").read_bytes() == b"last"
