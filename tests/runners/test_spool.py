"""A supervisor's reports on a full disk: in order, numbered without a gap, and nothing lost that frees a slot."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import Report, ReportKind
from edt_runner.launch.supervisor_client import SpoolReader
from edt_runner.supervisor import agent_link as module
from edt_runner.supervisor.agent_link import Spool, note_coordinator
from support.small_disk import SmallDisk, small_disk
from support.training import spec_for


@pytest.fixture
def spec(tmp_path: Path) -> AttemptSpec:
    return spec_for(tmp_path, "conv")


@pytest.fixture
def disk(spec: AttemptSpec) -> Iterator[SmallDisk]:
    """On which the spool lies."""
    with small_disk(Path(spec.spool_dir), 1 << 20) as disk:
        yield disk


@contextmanager
def spool_of_at_most(spec: AttemptSpec, more: int) -> Iterator[None]:
    """The spool's file takes so many bytes more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (Path(spec.spool_dir) / "reports.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def reports_in(spec: AttemptSpec) -> list[Report]:
    """All that is on disk. Numbers have no gap."""
    reports = SpoolReader(spec.spool_dir).read()
    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    return reports


def kinds(spec: AttemptSpec) -> list[str]:
    return [str(report.kind) for report in reports_in(spec)]


def gone(allocation: int) -> dict[str, Any]:
    return {"allocation": allocation, "slot": "0", "kind": "lost"}


def test_a_report_that_fits_by_half_does_not_merge_with_the_next(spec: AttemptSpec) -> None:
    spool = Spool(spec)
    spool.append(ReportKind.ATTEMPT_STARTED, {"pid": 1})
    with spool_of_at_most(spec, 40):
        spool.append(ReportKind.ENGINE_GONE, gone(1))
        spool.append(ReportKind.ENGINE_GONE, gone(2))
        assert spool.holds and spool.seq == 1
        assert kinds(spec) == ["attempt-started"]
        assert (Path(spec.spool_dir) / "reports.jsonl").read_bytes().endswith(b"}\n")
    assert spool.flush()
    assert [report.body["allocation"] for report in reports_in(spec) if report.kind is ReportKind.ENGINE_GONE] == [1, 2]
    assert kinds(spec)[-1] == "storage"  # it is over


def test_of_too_many_that_wait_progress_goes_first_and_ends_never(
    spec: AttemptSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_HELD", 6)
    spool = Spool(spec)
    with spool_of_at_most(spec, 0):
        spool.append(ReportKind.PROGRESS, {"step": 1})
        for number in range(4):
            spool.append(ReportKind.PROGRESS, {"step": 2 + number})
            spool.append(ReportKind.ENGINE_GONE, gone(1 + number))
        for number in range(4):
            spool.append(ReportKind.ENGINE_GONE, gone(5 + number))
        spool.append(ReportKind.ATTEMPT_ENDED, {"kind": "lost"})
    assert spool.flush()
    reports = reports_in(spec)
    assert [report.body["allocation"] for report in reports if report.kind is ReportKind.ENGINE_GONE] == list(
        range(1, 9)
    )
    assert ReportKind.PROGRESS not in {report.kind for report in reports}
    end = next(report for report in reports if report.kind is ReportKind.STORAGE and not report.body["error"])
    assert end.body["given_up"] == 5


@pytest.mark.tmpfs_mount
def test_on_a_full_disk_the_room_that_was_kept_tells_of_it_and_of_what_ends(spec: AttemptSpec, disk: SmallDisk) -> None:
    now = [0.0]
    spool = Spool(spec, monotonic=lambda: now[0])
    disk.fill()
    step = 0
    while ReportKind.STORAGE not in kinds(spec):
        step += 1
        spool.append(ReportKind.PROGRESS, {"step": step, "metrics": {"loss": 0.5}})
        assert step < 1000
    spool.append(ReportKind.PROGRESS, {"step": 0})  # given up from here on
    spool.append(ReportKind.ENGINE_GONE, gone(1))
    assert kinds(spec)[-2:] == ["storage", "engine-gone"]
    disk.make_room()
    now[0] += 5.0
    assert spool.flush()
    spool.append(ReportKind.PROGRESS, {"step": step + 1})
    begun, over = (report.body for report in reports_in(spec) if report.kind is ReportKind.STORAGE)
    assert begun == {"place": "spool", "error": "No space left on device", "seconds": 0.0}
    assert over == {"place": "spool", "error": "", "seconds": 5.0, "given_up": 1}
    assert kinds(spec)[-1] == "progress"


@pytest.mark.tmpfs_mount
def test_when_that_room_is_used_up_reports_wait_in_order(spec: AttemptSpec, disk: SmallDisk) -> None:
    now = [0.0]
    spool = Spool(spec, monotonic=lambda: now[0])
    disk.fill()
    for number in range(1, 2001):
        spool.append(ReportKind.ENGINE_GONE, gone(number))
    assert spool.holds
    before = len(reports_in(spec))
    disk.make_room()
    now[0] += 2.0
    assert spool.flush()
    reports = reports_in(spec)
    assert 200 < before < len(reports)
    ended = [report.body["allocation"] for report in reports if report.kind is ReportKind.ENGINE_GONE]
    assert ended == list(range(1, 2001))


@pytest.mark.tmpfs_mount
def test_a_spool_that_cannot_be_begun_raises_and_leaves_no_name(spec: AttemptSpec, disk: SmallDisk) -> None:
    spool = Spool(spec)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        spool.introduce()
    assert not list(Path(spec.spool_dir).glob("attempt.*"))


@pytest.mark.tmpfs_mount
def test_on_a_full_disk_another_coordinator_is_noted_in_the_place_of_the_first(
    spec: AttemptSpec, disk: SmallDisk
) -> None:
    place = Path(spec.spool_dir) / "coordinator"
    note_coordinator(spec, "10.0.0.1:40001")
    disk.fill()
    note_coordinator(spec, "10.0.0.2:5")
    assert place.read_text().strip() == "10.0.0.2:5"
    disk.make_room()
    note_coordinator(spec, "10.0.0.3:6")
    assert place.read_text() == "10.0.0.3:6"
    assert not place.with_suffix(".tmp").exists()


def test_another_supervisor_goes_on_behind_the_last_number(spec: AttemptSpec) -> None:
    first = Spool(spec)
    first.append(ReportKind.ATTEMPT_STARTED, {"pid": 1})
    first.close()
    with (Path(spec.spool_dir) / "reports.jsonl").open("ab") as file:
        file.write(json.dumps({"torn": 1}).encode())
    second = Spool(spec)
    second.append(ReportKind.ATTEMPT_STARTED, {"pid": 2})
    assert [report.body["pid"] for report in reports_in(spec)] == [1, 2]
