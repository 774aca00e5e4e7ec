"""A provisioner: what it does about what is wanted and what there is, and that it keeps nothing that matters."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edt_contract.encoding import to_json_object
from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState, node_token
from edt_provisioner.cluster import ClusterAway
from edt_provisioner.decide import Actions, decide
from edt_provisioner.errors import ApiUnreachable, BadSetting, PoolUnknown
from edt_provisioner.loop import REFUSED_SECONDS, Provisioner
from edt_provisioner.process import ProcessCluster, ProcessSettings
from edt_provisioner.settings import Settings, node_environment, read_settings

A = NodeRequest("p-1", slots=2, job="edt-1", user="ann")
RUNNING, PENDING = NodeState("p-1", PoolState.RUNNING), NodeState("p-1", PoolState.PENDING, "no room")
ENDED = NodeState("p-1", PoolState.ENDED)


class TestDecide:
    def test_what_is_wanted_and_not_there_is_asked_for(self) -> None:
        assert decide([A], []) == Actions((A,), ())

    @pytest.mark.parametrize("there", [RUNNING, PENDING, ENDED])
    def test_what_is_there_is_not_asked_for_again(self, there: NodeState) -> None:
        assert decide([A], [there]) == Actions((), ())

    def test_what_was_there_once_is_not_asked_for_again(self) -> None:
        assert decide([replace(A, created=True)], []) == Actions((), ())

    @pytest.mark.parametrize("requests", [[], [replace(A, end=True)]])
    @pytest.mark.parametrize("there", [RUNNING, PENDING])
    def test_what_is_not_wanted_is_ended(self, requests: list[NodeRequest], there: NodeState) -> None:
        assert decide(requests, [there]) == Actions((), ("p-1",))

    def test_what_has_ended_is_removed_once_the_api_knows(self) -> None:
        assert decide([], [ENDED]) == Actions((), ())
        assert decide([], [ENDED], told=frozenset({"p-1"})) == Actions((), ("p-1",))


class Api(ThreadingHTTPServer):
    """The two routes of an API that wants certain nodes, whatever it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[NodeRequest] = []
        self.known = False
        self.down = False
        self.told: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Api

    def do_PUT(self) -> None:
        self._body()
        self.server.known = True
        self._answer(200, {})

    def do_POST(self) -> None:
        told = self._body()
        if self.server.down:
            self._answer(503, {})
        elif not self.server.known:
            self._answer(404, {"detail": "no pool p"})
        else:
            self.server.told.append(told)
            self._answer(200, {"requests": [to_json_object(each) for each in self.server.requests]})

    def _body(self) -> dict[str, Any]:
        self.server.tokens.add(self.headers["Authorization"])
        return dict(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""


class Memory:
    """A cluster manager that is a table."""

    def __init__(self) -> None:
        self.there: dict[str, NodeState] = {}
        self.away = False
        self.refuses = ""
        self.created: list[str] = []

    def offer(self) -> PoolOffer:
        return PoolOffer("process", 2, 4)

    def nodes(self) -> Sequence[NodeState]:
        if self.away:
            raise ClusterAway("it is away")
        return list(self.there.values())

    def create(self, requests: Sequence[NodeRequest]) -> Sequence[NodeState]:
        self.created += [each.node for each in requests]
        if self.refuses:
            return [NodeState(each.node, PoolState.REFUSED, self.refuses) for each in requests]
        self.there |= {each.node: NodeState(each.node, PoolState.PENDING) for each in requests}
        return []

    def end(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self.there.pop(node, None)

    def watch(self, changed: Callable[[], None]) -> None:
        """It tells nothing by itself."""

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(api: Api, tmp_path: Path) -> Settings:
    (tmp_path / "join-token").write_text("the join token\n")
    return Settings(api=api.url, home=tmp_path, pool="p")


@pytest.fixture
def memory() -> Memory:
    return Memory()


class TestLoop:
    @pytest.fixture
    def clock(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def provisioner(self, settings: Settings, memory: Memory, clock: list[float]) -> Iterator[Provisioner]:
        provisioner = Provisioner(settings, memory, lambda: clock[0])
        yield provisioner
        provisioner.close()

    def test_it_registers_and_asks_for_what_is_wanted(self, api: Api, memory: Memory, provisioner: Provisioner) -> None:
        api.requests = [A]
        provisioner.look()
        assert list(memory.there) == ["p-1"]
        provisioner.look()
        assert [node["node"] for node in api.told[-1]["nodes"]] == ["p-1"]
        assert memory.created == ["p-1"]
        assert api.tokens == {"Bearer the join token"}

    def test_a_pool_that_was_removed_is_registered_again(self, api: Api, provisioner: Provisioner) -> None:
        provisioner.look()
        api.known = False
        with pytest.raises(PoolUnknown):
            provisioner.look()

    def test_without_the_api_nothing_is_changed(self, api: Api, memory: Memory, provisioner: Provisioner) -> None:
        api.requests = [A]
        provisioner.look()
        api.down = True
        with pytest.raises(ApiUnreachable):
            provisioner.look()
        assert list(memory.there) == ["p-1"]

    def test_without_the_cluster_manager_the_api_is_told_why(
        self, api: Api, memory: Memory, provisioner: Provisioner
    ) -> None:
        api.requests, memory.away = [A], True
        provisioner.look()
        assert api.told[-1] == {"nodes": None, "trouble": "it is away"}
        memory.away = False
        provisioner.look()
        assert api.told[-1] == {"nodes": [], "trouble": None}

    def test_what_was_refused_is_told_and_asked_for_again_after_a_while(
        self, api: Api, memory: Memory, provisioner: Provisioner, clock: list[float]
    ) -> None:
        api.requests, memory.refuses = [A], "exceeded quota"
        provisioner.look()
        provisioner.look()
        (told,) = api.told[-1]["nodes"]
        assert (told["node"], told["state"], told["reason"]) == ("p-1", "refused", "exceeded quota")
        assert memory.created == ["p-1"]
        clock[0], memory.refuses = REFUSED_SECONDS + 1, ""
        provisioner.look()
        provisioner.look()
        assert [node["state"] for node in api.told[-1]["nodes"]] == ["pending"]

    def test_a_new_provisioner_goes_on_from_what_it_finds(
        self, api: Api, settings: Settings, memory: Memory, provisioner: Provisioner
    ) -> None:
        api.requests = [A]
        provisioner.look()
        after = Provisioner(settings, memory)
        api.requests = []
        after.look()
        after.close()
        assert memory.there == {}
        assert memory.created == ["p-1"]

    def test_what_has_ended_is_removed_after_the_api_was_told(
        self, api: Api, memory: Memory, provisioner: Provisioner
    ) -> None:
        memory.there["p-1"] = ENDED
        provisioner.look()
        assert [node["state"] for node in api.told[-1]["nodes"]] == ["ended"]
        assert memory.there == {}


class TestSettings:
    def test_a_bad_setting_is_named_with_what_it_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EDT_POOL_SLOTS", "none")
        with pytest.raises(BadSetting, match="EDT_POOL_SLOTS: 'none'; it is a whole number from 1 to 1024"):
            read_settings(ProcessSettings, {})
        with pytest.raises(BadSetting, match="--pool: 'No'; it is a pool's name"):
            read_settings(ProcessSettings, {"pool": "No"})

    def test_a_node_learns_where_the_platform_is_and_no_token(self, settings: Settings) -> None:
        environ = node_environment(A, settings)
        assert (environ["EDT_NAME"], environ["EDT_CPU_SLOTS"], environ["EDT_TEMPORARY"]) == ("p-1", "2", "true")
        assert "the join token" not in str(environ)

    def test_the_token_of_a_node_is_for_this_node(self) -> None:
        assert node_token("secret", "p-1") != node_token("secret", "p-2")
        assert node_token("secret", "p-1") == node_token("secret", "p-1")


def test_a_process_pool_shows_what_has_no_room_as_pending_and_forgets_what_is_ended(tmp_path: Path) -> None:
    (tmp_path / "join-token").write_text("the join token\n")
    settings = ProcessSettings(home=tmp_path, process_pool_room=0, api="http://127.0.0.1:9")
    cluster = ProcessCluster(settings)
    cluster.create([A])
    cluster.create([A])
    assert cluster.nodes() == [NodeState("p-1", PoolState.PENDING, "this machine has room for 0 nodes, and 0 run")]
    assert ProcessCluster(settings).nodes() == cluster.nodes(), "the next one finds it"
    cluster.end(["p-1"])
    assert cluster.nodes() == []
