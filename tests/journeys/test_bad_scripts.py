"""Scripts that raise, and scripts that do not want to go."""

from __future__ import annotations

from pathlib import Path

from support.house import EXECS, House
from support.journey import house_in
from support.waiting import until


def test_a_script_that_raises_is_an_error_with_its_traceback_in_the_error_log(house: House, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('before')\nraise ValueError('no, this will not do')\n")
    job = house.submit(tmp_path / "main.py", "--numWorker 2")
    end = house.wait(job, "ERROR")
    assert end["message"] == "ValueError: no, this will not do"
    log = {
        kind: house.api.get(f"{EXECS}/{job}/log", params={"logType": kind}, headers={"Accept": "text/plain"}).text
        for kind in ("outlog", "errlog", "outerrlog")
    }
    assert log["outlog"] == ""
    assert log["errlog"].count("Traceback") == 1 and "no, this will not do" in log["errlog"]
    assert "before" in log["outerrlog"] and "Traceback" in log["outerrlog"]
    assert house.api.get(f"{EXECS}/{job}").json()["state"] == "ERROR"


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    with house_in(tmp_path, EDT_GRACE_SECONDS="2") as house:
        (tmp_path / "main.py").write_text(
            "import signal, time\n"
            "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
            "    signal.signal(number, signal.SIG_IGN)\n"
            "print('deaf', flush=True)\n"
            "time.sleep(600)\n"
        )
        job = house.submit(tmp_path / "main.py", "--numWorker 1")
        out = house.home / "jobs" / job / "log/driver.out"
        until(lambda: out.exists() and "deaf" in out.read_text(), 60, "the script runs")
        supervisor = house.supervisor_of(job)
        house.api.post(f"{EXECS}/{job}/stop").raise_for_status()
        house.wait(job, "KILLED")
        assert supervisor not in house.processes()
        assert all(slot["exec_id"] is None for node in house.nodes() for slot in node["slots"])
