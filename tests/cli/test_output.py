"""How answers look: what users wrote is shown as it is, in terminals of any width."""

from __future__ import annotations

import pytest
from rich.console import Console

from edt_cli import output

REMARKS = ["", "its image [/x] needs a node that starts containers"]


@pytest.fixture(params=[80, 200])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The columns of a terminal."""
    width: int = request.param
    plain = output.console()
    monkeypatch.setattr(output, "console", lambda: Console(width=width, highlight=False, markup=plain._markup))
    return width


def test_brackets_of_users_are_no_markup_and_their_line_ends_no_lines(
    shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("edt-1", "[cat,dog]\ntwo"), ("edt-2", "[/closing]")]
    output.table(("JOB", "NAME"), rows, "nothing", remarks=REMARKS)
    lines = capsys.readouterr().out.splitlines()
    assert "[cat,dog] two" in lines[1]
    assert "[/closing]" in lines[2]
    assert REMARKS[1] in (lines[2] if shown == 200 else lines[3])
    output.sheet([("Arguments", "--only [cat,dog] --x [/y]")])
    assert "--only [cat,dog] --x [/y]" in capsys.readouterr().out


def test_a_narrow_terminal_shows_a_remark_below_its_row(capsys: pytest.CaptureFixture[str], shown: int) -> None:
    output.table(("JOB",), [("edt-1",), ("edt-2",)], "nothing", remarks=["", "waits"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == (
        ["JOB", "edt-1", "edt-2", "  waits"] if shown == 80 else ["JOB    MESSAGE", "edt-1", "edt-2  waits"]
    )


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (57_000, "57 kB"), (3_200_000_000, "3.2 GB")]
)
def test_bytes_are_told_in_the_unit_that_fits(count: int, text: str) -> None:
    assert output.size(count) == text
