"""``python -m edt_scheduler.simulate``: what a person types, sees and finds in files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edt_scheduler.simulate import small, traces
from edt_scheduler.simulate.__main__ import main


def simulate(*words: str) -> int:
    return main(list(words))


def test_policies_stand_in_one_table_with_the_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "day.csv"
    path.write_text(
        "name,time,application,num_replicas,batch_size\n"
        "long,0,vision,4,1024\nshort,100,ranking,1,4096\nlate,700,ranking,1,4096\n"
    )
    assert simulate(str(path), "--nodes", "1", "--policy", "fifo", "tiresias", "--policy", "bound") == 0
    seen = capsys.readouterr()
    title, header, *rows = seen.out.splitlines()[:5]
    assert title == "day: 3 jobs, 1 nodes of 4 GPUs, a plan every 60 s, 30 s a change"
    assert header.split()[:3] == ["policy", "mean", "s"]
    means = {row.split()[0]: int(row.split()[1]) for row in rows}
    assert list(means) == ["fifo", "tiresias", "bound"]
    assert means["bound"] < min(means["tiresias"], means["fifo"])
    assert [line.split(":")[0] for line in seen.err.splitlines()] == ["fifo", "tiresias", "bound"]


def test_all_figures_and_each_job_are_written_as_json(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert simulate("small", "--policy", "ours", "--json", str(path), "--pause", "5", "--noise", "0.1") == 0
    body = json.loads(path.read_text())
    assert body["rules"]["pause"] == 5
    assert body["rules"]["noise"] == 0.1
    assert body["bound"] is None
    found = body["policies"]["ours"]
    assert [each["name"] for each in found["each"]] == [each.name for each in small.small_workload()]
    times = [each["ended"] - each["submitted"] for each in found["each"]]
    assert found["mean"] == pytest.approx(sum(times) / len(times))
    assert found["gpu_hours"] == pytest.approx(sum(each["gpu_seconds"] for each in found["each"]) / 3600)


def test_a_picture_of_each_policy_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("small", "--policy", "fifo", "optimus", "--gantt", str(tmp_path / "week.svg")) == 0
    seen = capsys.readouterr().out
    for name in ("fifo", "optimus"):
        path = tmp_path / f"week-{name}.svg"
        assert f"{path} is drawn" in seen
        drawn = ElementTree.parse(path)  # noqa: S314 (drawn above)
        titles = {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")}
        assert titles == {each.name for each in small.small_workload()}
    assert simulate("small", "--policy", "fifo", "--gantt", str(tmp_path / "one.svg")) == 0
    assert (tmp_path / "one.svg").read_text() == (tmp_path / "week-fifo.svg").read_text()


def test_where_traces_are_missing_the_small_workload_stands_in_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(traces.VARIABLE, str(tmp_path))
    assert simulate("1.0/6", "--policy", "fifo") == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"There are no traces in {tmp_path} (--traces, or EDT_TRACES, names another folder).")
    assert "stands in for 1.0/6" in first
    assert second.startswith("the small workload: 40 jobs")


def test_a_workload_of_ones_own_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "week.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,0,ranking,1,4096\nb,90,vision,2,512\n")
    assert simulate(str(path), "--policy", "tiresias", "--nodes", "1", "--gpus", "2", "--at-once") == 0
    assert capsys.readouterr().out.startswith(
        "week: 2 jobs, 1 nodes of 2 GPUs, a plan every 60 s and at each submission"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,time\na,0\n", "week.csv: the column application is missing"),
        ("name,time,application,num_replicas,batch_size\na,x,vision,1,512\n", "week.csv, line 2: invalid literal"),
        ("name,time,application,num_replicas,batch_size\na,0,nobody,1,512\n", "there is no application nobody"),
        ("name,time,application,num_replicas,batch_size\na,0,vision,0,512\n", "line 2: num_replicas"),
        ("name,time,application,num_replicas,batch_size\na,-5,vision,1,512\n", "line 2: time"),
        (
            "name,time,application,num_replicas,batch_size\na,0,vision,1,9999\n",
            "a: vision was trained with batches from",
        ),
        (
            "name,time,application,num_replicas,batch_size\na,0,vision,1,512\na,9,vision,1,512\n",
            "line 3: there is a job a already",
        ),
        ("name,time,application,num_replicas,batch_size\n", "week.csv holds no job"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    path = tmp_path / "week.csv"
    path.write_text(text)
    assert simulate(str(path), "--policy", "fifo") == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("week",), "a workload is small, LOAD/NUMBER such as 1.0/6, or the path of a CSV file, not 'week'"),
        (("nowhere/week.csv",), "nowhere/week.csv: No such file or directory"),
        (("small", "--nodes", "1", "--policy", "tiresias"), "wants 8 GPUs and never starts: the cluster has 4"),
        (("small", "--json", "nowhere/at/all.json"), "there is no folder nowhere/at"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert simulate(*words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policy", "best"), "argument --policy: invalid choice: 'best'"),
        (("--round", "0"), "argument --round: takes a number from 1, not '0'"),
        (("--noise", "2"), "argument --noise: takes a number from 0 to 0.5, not '2'"),
        (("--wrong", "nan"), "argument --wrong: takes a number from 1, not 'nan'"),
        (("--nodes", "-1"), "argument --nodes: takes a whole number from 1, not '-1'"),
    ],
)
def test_an_option_says_what_it_takes(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        simulate("small", *words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_workload_that_the_traces_do_not_have_is_refused_with_those_that_they_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pollux" / "workloads-1.0").mkdir(parents=True)
    (tmp_path / "pollux" / "workloads-1.0" / "workload-3.csv").touch()
    assert simulate("1.0/9", "--traces", str(tmp_path)) == 2
    assert capsys.readouterr().err == f"{tmp_path} has no workload 1.0/9; it has 1.0/3\n"
