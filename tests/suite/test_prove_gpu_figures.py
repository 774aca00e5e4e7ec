"""What ``benchmarks/prove_gpu.py`` makes of what it sees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _gpu_copies import TO_DEVICE, TO_HOST, Copies, read, sort
from _gpu_machine import Gpu, Machine, visible
from _gpu_page import Page
from prove_gpu import main

CARD = Gpu("a card", 132, 80 << 30, "9.0", "off")


def machine(gpus: int, nccl: tuple[int, ...]) -> Machine:
    return Machine((CARD,) * gpus, 16, "580", "13.0", "91900", nccl, "2.11", "3.12")


def test_copies_are_batches_by_their_size_and_gradients_from_a_size_on() -> None:
    memcpys = [
        ("Memcpy HtoD (Pinned -> Device)", 3 << 20),
        ("Memcpy HtoD (Pageable -> Device)", 100),
        ("Memcpy HtoD (Pinned -> Device)", 2 << 20),
        ("Memcpy DtoH (Device -> Pinned)", 3 << 20),
        ("Memcpy DtoH (Device -> Pinned)", 8),
        ("Memcpy DtoD (Device -> Device)", 1 << 30),
    ]
    assert sort(memcpys, batches=[3 << 20], least_gradients=1 << 20) == {
        TO_DEVICE: Copies(batches=3 << 20, gradients=2 << 20, others=100, number=3, largest=3 << 20),
        TO_HOST: Copies(batches=0, gradients=3 << 20, others=8, number=2, largest=3 << 20),
    }


def test_a_profile_that_failed_says_why(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    (tmp_path / "copies.json").write_text('{"error": "RuntimeError: CUPTI is busy"}')
    with pytest.raises(RuntimeError, match="the profiler did not run: RuntimeError: CUPTI is busy"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("gpus", "nccl", "engines", "why"),
    [
        (0, (), 1, "no GPU"),
        (1, (), 1, "this torch has no NCCL"),
        (1, (2, 29, 7), 1, ""),
        (1, (2, 29, 7), 2, "NCCL 2.29.7 refuses two ranks on one GPU"),
        (1, (2, 30, 4), 2, ""),
        (2, (2, 29, 7), 2, ""),
    ],
)
def test_engines_share_a_gpu_over_nccl_from_2_30_on(gpus: int, nccl: tuple[int, ...], engines: int, why: str) -> None:
    assert machine(gpus, nccl).why_no_nccl(engines) == why


def test_a_digest_that_differs_is_a_failure_and_one_that_is_equal_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page()
    page.section("digests", "of trainings")
    page.equal("W = 2", "a" * 64, "a" * 64, "1 s")
    assert page.failures == []
    page.equal("join", "b" * 64, "a" * 64, "1 s")
    assert page.failures == ["join: digest bbbbbbbbbbbb, not aaaaaaaaaaaa"]
    assert [row.value for row in page.rows] == [1.0, 0.0]
    assert "DIFFERENT" in capsys.readouterr().out


def test_a_figure_is_judged_by_its_median(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page()
    page.section("speed", "a step")
    page.figure("ResNet-18", "ours / DDP", "x", [1.01, 1.5, 1.0], most=1.02)
    page.figure("ResNet-18", "ours / DDP", "x", [1.03], most=1.02)
    page.figure("ResNet-18", "ours / DDP", "x", [7.0])
    assert [target.met for target in page.targets] == [True, False]
    _, met, missed, free = capsys.readouterr().out.strip().splitlines()
    assert "1.01 x (1–1.5, 3 runs)   met: at most 1.02" in met
    assert "MISSED: at most 1.02" in missed
    assert "at most" not in free


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sections", "sped"], "--sections: got 'sped', takes some of machine, digests, pauses, pcie, speed"),
        (["--budget", "0"], "--budget: got 0, takes a number of seconds above 0"),
        (["--device", "gpu"], "argument --device: invalid choice: 'gpu'"),
    ],
)
def test_a_wrong_argument_is_named_with_what_it_takes(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["prove_gpu.py", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert says in capsys.readouterr().err


def test_engines_take_the_gpus_that_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f")
    assert visible(machine(2, ())) == ["3", "GPU-5f"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible(machine(2, ())) == ["0", "1"]
