"""The part of the suite that runs inside pytest: what is deselected, what may not be skipped, and what is written down.

tests/conftest.py loads it, so a plain `pytest` run has it, too. ``--lane``, ``--tier`` and ``--account`` are what
``python -m suite`` gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from suite import forgiveness, requirements, share
from suite.lanes import Lane, lane_of

ROOT = Path(__file__).parents[2]
_SUPPORT = ROOT / "tests/support"
"""What it raises, rather than asserts, is that something did not come in time."""
_TENSORFLOW = frozenset({"tensorflow", "keras", "tf_keras"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "the whole suite, see CONTRIBUTING.md")
    group.addoption("--lane", choices=[lane.value for lane in Lane], help="only the tests of one lane")
    group.addoption(
        "--tier",
        default="all",
        help="first: without tests marked extended; 0 to 9: with that group of them; all (default): everything",
    )
    group.addoption("--account", metavar="FILE", help="write down what happens, one JSON object a line")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Requiring(config), "suite-requiring")
    if config.getoption("account"):
        config.pluginmanager.register(Accounting(Path(config.getoption("account"))), "suite-accounting")


class Requiring:
    """EDT_REQUIRE: what it names must be there, and no test may skip itself."""

    def __init__(self, config: pytest.Config) -> None:
        try:
            self.names = requirements.required(os.environ.get(requirements.VARIABLE, ""))
        except requirements.Unmet as error:
            raise pytest.UsageError(str(error)) from None
        self._unimportable: list[str] = []
        """Files of tests that need TensorFlow, which is not installed."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Fail before anything is collected where something is missing."""
        try:
            requirements.check(",".join(self.names))
        except requirements.Unmet as error:
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """A file that cannot be imported for want of TensorFlow has no tests on this machine."""
        call: list[BaseException] = []
        if isinstance(collector, pytest.Module) and not requirements.has_tensorflow():
            _watch_import(collector, call)
        report: Any = yield
        if report.outcome != "passed" and any(map(_wants_tensorflow, call)):
            self._unimportable.append(collector.nodeid)
            report.outcome, report.longrepr, report.result = "passed", None, []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect what belongs to the other lane or tier, and what this machine cannot run; say the latter."""
        collected = [item.nodeid for item in items]
        self._of_this_run(config, items)
        lane = config.getoption("lane")
        lacking: dict[str, list[int]] = {}
        for name, present in requirements.PROBES.items():
            marked = [item for item in items if _needs(item, name)]
            files = [each for each in self._unimportable if name == "tensorflow" and lane in {None, _lane(each)}]
            if files or (marked and not present()):
                _drop(config, items, marked)
                lacking[name] = [len(marked), len(files)]
                print(f"\n{requirements.deselected(name, len(marked), len(files))}")
        accounting = config.pluginmanager.get_plugin("suite-accounting")
        if isinstance(accounting, Accounting):
            accounting.collected(collected, items, lacking)

    def _of_this_run(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        tier, lane = config.getoption("tier"), config.getoption("lane")
        if tier != "all":
            extended = [item for item in items if item.get_closest_marker("extended")]
            try:
                group = None if tier == "first" else int(tier)
                kept = (
                    share.chosen([item.nodeid for item in extended], share.known_durations(), group)
                    if group is not None
                    else set()
                )
            except (ValueError, share.TooLong) as error:
                raise pytest.UsageError(f"--tier {tier}: {error}") from None
            _drop(config, items, [item for item in extended if item.nodeid not in kept])
        if lane is not None:
            _drop(config, items, [item for item in items if _lane(item.nodeid, item) != lane])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
        """Where something is required a skip is a failure."""
        report: Any = yield
        if self.names and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"skipped, which no test may be where {requirements.VARIABLE} is set: {report.longrepr}"
        if report.failed:
            report.never = _never(item, call)
        return report


class Accounting:
    """Writes down, at once and one JSON object a line, what ``account.read`` reads."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", buffering=1)
        self._seconds = 0.0
        self._outcome, self._text, self._never = "passed", "", None

    def _write(self, kind: str, **body: object) -> None:
        self._file.write(json.dumps({"kind": kind, **body}) + "\n")

    def collected(self, collected: list[str], items: list[pytest.Item], lacking: dict[str, list[int]]) -> None:
        extended = [item.nodeid for item in items if item.get_closest_marker("extended")]
        self._write(
            "collected",
            all=collected,
            selected=[item.nodeid for item in items],
            extended=extended,
            lacking=lacking,
        )

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("uncollected", test=report.nodeid, text=report.longreprtext)

    @pytest.hookimpl
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._seconds, self._outcome, self._text, self._never = 0.0, "passed", "", None
        self._write("begun", test=nodeid)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._outcome = "failed"
            self._text += f"{report.when}: {_whole(report)}\n"
            self._never = self._never or getattr(report, "never", None)
        elif report.skipped and self._outcome == "passed":
            self._outcome, self._text = "skipped", str(report.longrepr)

    @pytest.hookimpl
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(
            "ended",
            test=nodeid,
            outcome=self._outcome,
            seconds=round(self._seconds, 3),
            text=self._text,
            never=self._never,
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write("finished", status=int(exitstatus))


def _drop(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    if unwanted:
        out = set(unwanted)
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in out]


def _lane(node: str, item: pytest.Item | None = None) -> Lane | None:
    """Of a test, or of a file. None: the tests are not those of this repository."""
    marker = item.get_closest_marker("lane") if item is not None else None
    file = node.partition("::")[0]
    if not file.startswith("tests/"):
        return None
    try:
        return lane_of(file, marker.args[0] if marker else None)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _needs(item: pytest.Item, name: str) -> bool:
    if item.get_closest_marker(name):
        return True
    trains = {"attempt", "nursery"} & set(_fixtures(item))
    return bool(name == "tensorflow" and trains and _parameters(item).get("framework") == "tensorflow")


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return dict(item.callspec.params) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _fixtures(item: pytest.Item) -> list[str]:
    return list(item.fixturenames) if isinstance(item, pytest.Function) else []


def _never(item: pytest.Item, call: pytest.CallInfo[Any]) -> str | None:
    marker = item.get_closest_marker("never_forgiven")
    flaky = {each.test for each in forgiveness.flaky_tests(forgiveness.FLAKY.read_text())}
    return forgiveness.never_of(
        item.nodeid.partition("::")[0],
        str(marker.args[0]) if marker else None,
        assertion=_assertion(item, call),
        checker=call.excinfo is not None and getattr(call.excinfo.value, "checkers_verdict", False),
        flaky=bool({item.nodeid, item.nodeid.partition("[")[0]} & flaky),
    )


def _assertion(item: pytest.Item, call: pytest.CallInfo[Any]) -> str:
    """What the tests' own files were at when an assertion failed, a statement a line from the test inwards; empty
    where it was something else, such as a time that ran out. The comparison itself may stand in a helper, or in a
    library, so that only the caller's statement names what was compared."""
    if call.excinfo is None or not isinstance(call.excinfo.value, AssertionError):
        return ""
    below, trace = item.config.rootpath / "tests", call.excinfo.traceback
    if Path(trace[-1].path).is_relative_to(_SUPPORT) and str(trace[-1].statement).strip().startswith("raise "):
        return ""
    return "\n".join(str(entry.statement).strip() for entry in trace if Path(entry.path).is_relative_to(below))


def _watch_import(module: pytest.Module, raised: list[BaseException]) -> None:
    """Note what importing the file raises: the report has it as text only."""
    imported: Callable[[], Any] = module._getobj

    def getobj() -> Any:
        try:
            return imported()
        except BaseException as error:
            raised.append(error)
            raise

    module._getobj = getobj  # type: ignore[method-assign]


def _wants_tensorflow(error: BaseException | None) -> bool:
    """Whether this error, or one that it was made of, is that TensorFlow is not installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _TENSORFLOW:
            return True
        if isinstance(error, pytest.skip.Exception) and any(f"'{name}" in str(error) for name in _TENSORFLOW):
            return True
        error = error.__cause__ or error.__context__
    return False


def _whole(report: pytest.TestReport) -> str:
    """The failure as pytest would print it, and what was captured meanwhile."""
    return "\n".join([report.longreprtext, *(f"--- {name} ---\n{text.rstrip()}" for name, text in report.sections)])
