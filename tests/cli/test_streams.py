"""Which files of a job's log `edt logs` shows."""

from __future__ import annotations

import pytest

from edt_cli.errors import CannotStart
from edt_cli.follow import ALL, STREAMS, streams


@pytest.mark.parametrize(
    ("stream", "rank", "expected"),
    [
        (ALL, None, STREAMS),
        ("err", None, ("err",)),
        ("engine-3.out", None, ("engine-3.out",)),
        ("rank-0.err", None, ("rank-0.err",)),
        (ALL, 2, ("rank-2.out", "rank-2.err")),
        ("err", 0, ("rank-0.err",)),
        ("elog", None, ("elog",)),
    ],
)
def test_a_rank_has_an_output_and_errors_and_other_streams_go_by_their_names(
    stream: str, rank: int | None, expected: tuple[str, ...]
) -> None:
    assert streams(stream, rank) == expected


def test_an_engine_has_an_output_and_errors_and_so_has_the_driver() -> None:
    assert streams(ALL, engine=12) == ("engine-12.out", "engine-12.err")
    assert streams("err", engine=12) == ("engine-12.err",)
    assert streams(ALL, driver=True) == ("out", "err")
    for process in ({"engine": 12}, {"driver": True}):
        with pytest.raises(CannotStart, match=r"--stream training: with --(engine|driver) it is all, out or err"):
            streams("training", **process)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stream", "rank"), [("elog", 1), ("engine-3.out", 1), ("rank-x.out", None)])
def test_what_is_no_stream_is_refused(stream: str, rank: int | None) -> None:
    with pytest.raises(CannotStart, match="--stream"):
        streams(stream, rank)
