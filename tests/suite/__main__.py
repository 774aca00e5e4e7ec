"""``python -m suite``: the whole suite in two lanes side by side. `make test` and `make test-all` start it.

    python -m suite                        the first tier, the checks of `make check`, and the dashboard's own tests
    python -m suite --tier all             both tiers
    python -m suite --tier commit          the first tier, and the group of the second that this commit has to run
    python -m suite --no-checks -- PATH…   in two lanes what pytest would run with these arguments
    python -m suite --keep-durations       write tests/suite/durations.json anew from the last run

Logs and a report of both lanes (report.json) lie in .pytest_cache/suite afterwards. Exit status: 0 good, 1 something
failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from suite import account, forgiveness, requirements, running, share
from suite.account import Account, Step
from suite.lanes import Lane

ROOT = Path(__file__).parents[2]
CACHE = Path(".pytest_cache").absolute()
FOLDER = CACHE / "suite"
_GOOD = {0, 1, 5}
"""Statuses of pytest after which every test was run: all passed, some failed, none was selected. Python ends with 1,
too, where pytest did not come to run at all, so a status counts only where pytest itself wrote it down."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m suite", description="The whole suite, in two lanes side by side.")
    parser.add_argument("--tier", choices=["first", "commit", "all"], default="first")
    parser.add_argument("--no-checks", action="store_true", help="tests only")
    parser.add_argument("--keep-durations", action="store_true", help="write durations.json from the last report")
    parser.add_argument("selection", nargs="*", metavar="-- ARGUMENT", help="given to pytest in both lanes")
    given = parser.parse_args(words)
    if given.keep_durations:
        kept = account.measured(FOLDER / "report.json", share.known_durations())
        share.DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")
        print(f"{share.DURATIONS}: {len(kept)} tests")
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background without one
    try:
        requirements.check(os.environ.get(requirements.VARIABLE, ""))
        return Suite(given.tier, given.selection, checks=not given.no_checks).run()
    except requirements.Unmet as error:
        print(f"{error}\n0 passed, 1 failed")
        return 1
    except KeyboardInterrupt:
        return 130


class Suite:
    """One run. ``tier``: first, commit or all; ``selection``: further arguments for pytest."""

    def __init__(self, tier: str, selection: Sequence[str], *, checks: bool) -> None:
        self._selection, self._checks = selection, checks
        self._tier = tier
        if tier == "commit":
            commit = share.commit_of(ROOT)
            self._tier = str(commit.group)
            print(f"Of the second tier: {commit}", flush=True)

    def run(self) -> int:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        begun = time.monotonic()
        jobs = {
            lane: self._pytest(
                *(lane.value, f"--lane={lane.value}", f"--tier={self._tier}", *self._selection),
                TEST_PORTS=f"{number}/{len(Lane)}",
            )
            for number, lane in enumerate(Lane)
        }
        checks = self._checking() if self._checks else []
        lanes = [running.Lane(lane.value, [*(checks if lane is Lane.UNITS else []), job]) for lane, job in jobs.items()]
        running.run(lanes)
        accounts = {lane.value: job.account or Account() for lane, job in jobs.items()}
        failed = account.failures(accounts.values())
        again = self._again(failed)
        passed_again = [name for name, one in again.items() if one.account is not None and one.account.passed(name)]
        verdict = forgiveness.judge(failed, passed_again)
        steps = [Step(job.name, job.good) for job in checks]
        self._print_failures(accounts, checks)
        wrong = [*_not_whole(jobs, everything=not self._selection), *_unlike(accounts)]
        _print("minutes by folder", account.table(accounts))
        _print("the longest tests", account.longest(accounts))
        spent = ", ".join(f"{lane.name} {sum(job.seconds for job in lane.jobs) / 60:.1f} min" for lane in lanes)
        _print(
            "",
            [*account.lacking_lines(accounts.values()), f"{spent}; in all {(time.monotonic() - begun) / 60:.1f} min"],
        )
        account.write_report(
            FOLDER / "report.json", accounts, {name: one.account or Account() for name, one in again.items()}
        )
        _keep_last_failed(verdict.failed)
        flaky = {each.test for each in forgiveness.flaky_tests(forgiveness.FLAKY.read_text())}
        _print("", account.closing(accounts, verdict, steps, wrong, flaky))
        return 1 if verdict.failed or wrong or not all(step.good for step in steps) else 0

    def _pytest(self, name: str, *words: str, **environ: str) -> running.Job:
        written = FOLDER / f"{name}.jsonl"
        # Values behind "=": pytest looks for arguments that are files before it knows the plugin's options.
        command = [sys.executable, "-m", "pytest", f"--account={written}", f"-ocache_dir={FOLDER / name}", *words]
        return running.Job(f"pytest in lane {name}", command, environ, FOLDER / f"{name}.log", written, Account())

    def _checking(self) -> list[running.Job]:
        dashboard = [sys.executable, str(ROOT / "api/dashboard/packaging/dashboard_build.py"), "--test"]
        make = ["make", "--no-print-directory", "check", f"VENV={sys.prefix}"]
        return [
            running.Job("make check", make, {"MAKEFLAGS": ""}, FOLDER / "check.log"),
            running.Job("the dashboard's tests", dashboard, {}, FOLDER / "dashboard.log"),
        ]

    def _again(self, failed: Sequence[forgiveness.Failed]) -> dict[str, running.Job]:
        """Each that may be forgiven once more, in a pytest of its own, while nothing else runs."""
        tests = forgiveness.to_run_again(failed)
        jobs = {test: self._pytest(f"again-{number}", test) for number, test in enumerate(tests, 1)}
        for test, job in jobs.items():
            job.name = test
        if jobs:
            running.run([running.Lane("again", list(jobs.values()))])
        return jobs

    def _print_failures(self, accounts: dict[str, Account], checks: Sequence[running.Job]) -> None:
        for job in checks:
            if not job.good:
                _print(job.name, [job.log.read_text(errors="replace").rstrip()])
        for one in accounts.values():
            for ended in one.ended.values():
                if ended.outcome == "failed":
                    why = [f"(never forgiven: {ended.never})"] if ended.never else []
                    _print(f"FAILED {ended.test}", [*why, ended.text.rstrip()])


def _not_whole(jobs: dict[Lane, running.Job], *, everything: bool) -> list[str]:
    """A sentence for each lane whose pytest has not run all its tests, behind what it said last. ``everything``:
    nothing was selected by name, so each lane has tests."""
    found = []
    for lane, job in jobs.items():
        status = job.process.returncode if job.process is not None else None
        found_account = job.account or Account()
        left = f"{found_account.left} of its tests were not run"
        if status not in _GOOD or found_account.left:
            why = f"pytest ended with status {status}, and {left}"
        elif found_account.status is None:
            why = f"pytest ended with status {status} before it could say how its run ended, and {left}"
        elif found_account.status != status:
            why = f"pytest ended with status {status}, though its tests ended with {found_account.status}"
        elif status == 1 and not found_account.failed:
            why = "pytest ended with status 1, and no test has failed"
        elif everything and not found_account.selected:
            why = "pytest has found no tests"
        else:
            continue
        _print(f"the end of {job.log}", job.log.read_text(errors="replace").splitlines()[-40:])
        found.append(f"lane {lane.value}: {why}")
    return found


def _unlike(accounts: dict[str, Account]) -> list[str]:
    (one, first), (other, second) = ((lane, account.all) for lane, account in accounts.items())
    if bool(first) != bool(second):
        return [f"lane {other if first else one} has collected nothing, though the other one has"]
    return [
        f"its id is another one in each process, so that nobody can name it (give its parameters ids): {test}"
        for test in account.unlike(first, second)
    ]


def _keep_last_failed(failed: Sequence[str]) -> None:
    """For `pytest --lf` afterwards."""
    path = CACHE / "v" / "cache" / "lastfailed"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict.fromkeys(failed, True)))


def _print(title: str, lines: Sequence[str]) -> None:
    print(f"\n──── {title} ".ljust(100, "─") if title else "", *lines, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
