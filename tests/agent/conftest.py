"""A node under test: a real agent process with stand-in supervisors, a small API, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from edt_contract.attempt import GANG_PROTOCOL, PROTOCOL, Assignment, AttemptSpec, DesiredSlot, DesiredState
from edt_contract.gang import Gang, GangCommand, GangNode
from support.fake_api import JOIN_TOKEN, FakeApi
from support.places import Place
from support.tagged import bearers, kill_bearers
from support.waiting import until

AGENT = Path(__file__).parents[1] / "support" / "agent_main.py"
INIT = AGENT.with_name("temporary_main.py")


class Node:
    """One node: its home, its agent (started and ended at will), its papers."""

    def __init__(self, home: Path, api: FakeApi, name: str = "n1") -> None:
        self.home = home
        self.api = api
        self.name = name
        self.tag = uuid.uuid4().hex
        self.agent: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        (home / "join-token").write_text(JOIN_TOKEN + "\n")

    @property
    def log(self) -> str:
        return (self.home / "agent.out").read_text()

    def start(self, main: Path = AGENT, before: Sequence[str] = (), **environ: str) -> subprocess.Popen[bytes]:
        """Start the agent; without a warm supervisor unless EDT_WARM=1 is given. ``before``: words before the command
        itself."""
        settings = {
            "EDT_API": self.api.url,
            "EDT_HOME": str(self.home),
            "EDT_NAME": self.name,
            "EDT_TAG": self.tag,
        }
        quick = {
            "EDT_AGENT_TICK_SECONDS": "0.2",
            "EDT_WARM": "0",
            "EDT_AGENT_POLL_SECONDS": "1",
            "EDT_DEVICES": "cpu",
            "EDT_CPU_SLOTS": "4",
        }
        with (self.home / "agent.out").open("ab") as output:
            self.agent = subprocess.Popen(
                [*before, sys.executable, str(main)],
                env={**os.environ, **settings, **quick, **environ},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self.agent

    def start_temporary(self, before: Sequence[str] = (), **environ: str) -> subprocess.Popen[bytes]:
        """Start the node as a cluster manager does: its first process is ``edt_agent.temporary``."""
        return self.start(INIT, before, **{"EDT_TEMPORARY": "true", **environ})

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the agent and wait for its end."""
        assert self.agent is not None
        self.agent.send_signal(number)
        return self.agent.wait(60)

    def assignment(self, job: str = "edt-1", fence: int = 1, slots: int = 1, **given: object) -> Assignment:
        """An attempt as the API would list it. ``environ``, ``framework`` and ``gang`` (a GangCommand) go into the
        spec, ``stop`` and ``ports`` into the desired, whose allocations count from ``first``. All of a gang is on this
        node, each slot a worker; ``size`` is its number of slots, if a slot was taken back since."""
        folder = self.home / "jobs" / job
        folder.mkdir(parents=True, exist_ok=True)
        first = fence * 100 + int(str(given.get("first", 0)))
        wanted = tuple(DesiredSlot(first + n, str(n)) for n in range(slots))
        command, ports = given.get("gang"), given.get("ports", ())
        gang = None
        if isinstance(command, GangCommand):
            size = int(str(given.get("size", slots)))
            gang = Gang(command, 1, (GangNode(self.name, "127.0.0.1", tuple(range(first, first + size))),))
        spec = AttemptSpec(
            job=job,
            fence=fence,
            node=self.name,
            framework=str(given.get("framework", "pytorch")),
            main="main.py",
            arguments=(),
            work_dir=str(folder),
            result_dir=str(folder),
            log_dir=str(folder / "log"),
            checkpoint_dir=str(folder / "checkpoint"),
            spool_dir=str(folder / "spool" / f"{fence}-{self.name}"),
            socket=str(folder / "spool" / f"{fence}-{self.name}" / "supervisor.sock"),
            environ=dict(given.get("environ", {})),  # type: ignore[call-overload]
            seed=1,
            max_engines=4,
            threads=1,
            cores=2,
            grace_seconds=float(str(given.get("grace_seconds", 0.2))),
            token="t",
            last_report_seq=len(self.api.reports.get(f"{job}/{fence}", ())),
            gang=gang,
            protocol=PROTOCOL if gang is None else GANG_PROTOCOL,
        )
        stop = bool(given.get("stop", False))
        return Assignment(spec, DesiredState(fence, wanted, stop=stop, ports=ports))  # type: ignore[arg-type]

    def runs(self, **given: object) -> int:
        """List an attempt and wait until its first engine has started; answers its supervisor's pid."""
        assignment = self.assignment(**given)  # type: ignore[arg-type]
        key = f"{assignment.spec.job}/{assignment.spec.fence}"
        self.api.want(assignment)
        until(lambda: "engine-started" in self.api.kinds(key), what=f"{key} runs")
        return int(self.api.last(key, "attempt-started")["pid"])

    def processes(self, **marks: str) -> dict[int, str]:
        return bearers(self.tag, **marks)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """The environment holds these EDT_ variables and no others."""

    def only(variables: Mapping[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return only


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def node(tmp_path: Path, api: FakeApi) -> Iterator[Node]:
    """A node whose agent the test starts and ends."""
    with _gone_at_the_end(Node(tmp_path / "home", api)) as node:
        yield node


@pytest.fixture(scope="module")
def working_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose agent works, for many tests: each has a job of its own."""
    with FakeApi() as api, _gone_at_the_end(Node(tmp_path_factory.mktemp("node") / "home", api)) as node:
        node.start(EDT_ADMIN_PASSWORD="secret", EDT_TOKEN="secret", EDT_DATABASE_URL="postgresql://secret")
        yield node


_LAUNCHERS = [pytest.param("process"), pytest.param("docker", marks=pytest.mark.docker)]
_LITTLE_MEMORY = {"EDT_DOCKER_MEMORY_BASE": "600m", "EDT_DOCKER_MEMORY_PER_SLOT": "300m"}


@pytest.fixture(scope="module", params=_LAUNCHERS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Either launcher, its agent at work, for many tests: each has a job of its own."""
    with _place(request.param, tmp_path_factory.mktemp("place") / "home") as place:
        place.start()
        yield place


@pytest.fixture(params=_LAUNCHERS)
def own_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Either launcher; the test starts and ends its agent."""
    with _place(request.param, tmp_path / "home") as place:
        yield place


@pytest.fixture(scope="module")
def docker_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Containers with little memory, their agent at work."""
    with _place("docker", tmp_path_factory.mktemp("place") / "home", **_LITTLE_MEMORY) as place:
        place.start()
        yield place


@pytest.fixture
def own_docker_place(tmp_path: Path) -> Iterator[Place]:
    """Containers; the test starts the agent."""
    with _place("docker", tmp_path / "home") as place:
        yield place


@pytest.fixture
def process_place(tmp_path: Path) -> Iterator[Place]:
    """Processes; the test starts the agent."""
    with _place("process", tmp_path / "home") as place:
        yield place


@contextmanager
def _place(kind: str, home: Path, **environ: str) -> Iterator[Place]:
    with FakeApi() as api, _gone_at_the_end(Node(home, api)) as node:
        place = Place(kind, node, **environ)
        try:
            yield place
        finally:
            place.close()


@contextmanager
def _gone_at_the_end(node: Node) -> Iterator[Node]:
    try:
        yield node
    finally:
        if node.agent is not None and node.agent.poll() is None:
            node.agent.kill()
            node.agent.wait()
        kill_bearers(node.tag)
