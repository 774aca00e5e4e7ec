"""Why a process of a gang failed, in a sentence: from its exit status and from the end of what it printed."""

from __future__ import annotations

import pytest

from edt_runner.supervisor.gang_failures import describe, exception_of, may_follow

RAISED = """Traceback (most recent call last):
  File "main.py", line 3, in <module>
    open("data")
FileNotFoundError: [Errno 2] No such file or directory: 'data'
"""
CHAINED = (
    RAISED
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "main.py", line 5, in <module>
    raise mine.NoData
mine.NoData
"""
)
OF_RANK_1 = "".join(f"[rank1]: {line}\n" for line in RAISED.splitlines())
TORCHRUN = (
    RAISED.replace("FileNotFoundError: [Errno 2] No such file or directory: 'data'", "ValueError: the cause")
    + """E1123 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
main.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_23:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 9)
"""
)


@pytest.mark.parametrize(
    ("code", "number", "errors", "oom", "sentence"),
    [
        (3, None, "", False, "rank 2 ended with status 3"),
        (1, None, RAISED, False, "rank 2: FileNotFoundError: [Errno 2] No such file or directory: 'data'"),
        (1, None, CHAINED, False, "rank 2: mine.NoData"),
        (1, None, OF_RANK_1, False, "rank 2: FileNotFoundError: [Errno 2] No such file or directory: 'data'"),
        (1, None, TORCHRUN, False, "rank 2: ValueError: the cause"),
        (None, 9, RAISED, False, "rank 2 was killed by signal 9 (SIGKILL)"),
        (None, 64, "", False, "rank 2 was killed by signal 64 (SIGRTMAX)"),
        (None, 50, "", False, "rank 2 was killed by signal 50 (unknown)"),
        (None, 9, "", True, "rank 2 was killed for memory"),
    ],
)
def test_the_sentence(code: int | None, number: int | None, errors: str, oom: bool, sentence: str) -> None:
    assert describe("rank 2", code, number, errors, oom=oom) == sentence


def test_of_processes_of_torchrun_the_root_cause_counts() -> None:
    two = OF_RANK_1.replace("rank1", "rank0").replace("'data'", "'other'") + OF_RANK_1 + TORCHRUN[len(RAISED) :]
    assert exception_of(two).endswith("No such file or directory: 'data' (in its process of rank 1)")


def test_torchrun_without_a_traceback_of_its_processes_tells_nothing() -> None:
    assert exception_of(TORCHRUN[TORCHRUN.index("E1123") :]) == ""


@pytest.mark.parametrize("text", ["", "Traceback", "ValueError: printed by the script", RAISED.splitlines()[0]])
def test_what_is_no_traceback_is_no_exception(text: str) -> None:
    assert exception_of(text) == ""


def test_lines_of_two_ranks_may_be_mixed() -> None:
    first, second = OF_RANK_1.splitlines(), OF_RANK_1.replace("rank1", "rank3").replace("'data'", "'x'").splitlines()
    mixed = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    assert exception_of(mixed).endswith("'x'")


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        ("rank 0: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4", True),
        ("rank 0: torch.distributed.DistBackendError: NCCL error", True),
        ("rank 0: ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("rank 0: ValueError: no such file", False),
        ("rank 0 was killed by signal 9 (SIGKILL)", False),
        ("rank 0 ended with status 3", False),
    ],
)
def test_a_broken_connection_may_follow_from_the_failure_of_another_rank(message: str, follows: bool) -> None:
    assert may_follow(message) is follows
