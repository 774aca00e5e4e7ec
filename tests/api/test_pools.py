"""Pools over HTTP: provisioners register and sync them, nodes join by a token of their own, people see and set them."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest

from edt_contract.encoding import from_json_object, to_json_object
from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState, node_token
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import pools
from edt_scheduler.store import pools as store
from support.served_api import JOIN_TOKEN, ServedApi

OFFER = PoolOffer(kind="process", slots=2, max_nodes=4, min_nodes=1, per_job=False, note="on this machine")
POOLS = "/api/v1/pools"


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> str:
    """The name of a pool of this test's own."""
    return f"gpu-{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}"


def joiner(api: ServedApi) -> httpx.Client:
    return api.client(token=JOIN_TOKEN)


def register(api: ServedApi, pool: str) -> dict[str, Any]:
    answer = joiner(api).put(f"{POOLS}/{pool}", json=to_json_object(OFFER))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sync(api: ServedApi, pool: str, *states: NodeState, trouble: str | None = None) -> dict[str, NodeRequest]:
    nodes = [to_json_object(each) for each in states] if trouble is None else None
    answer = joiner(api).post(f"{POOLS}/{pool}/sync", json={"trouble": trouble, "nodes": nodes})
    assert answer.status_code == 200, answer.text
    return {each["node"]: from_json_object(NodeRequest, each) for each in answer.json()["requests"]}


def node(name: str, token: str, **changes: Any) -> tuple[dict[str, str], dict[str, Any]]:
    offer = {"name": name, "host": "h", "cores": 2, "boot_id": "b", "incarnation": "1", "slots": [{"slot": "0"}]}
    return {"Authorization": f"Bearer {token}"}, offer | changes


def join(api: ServedApi, name: str, token: str, **changes: Any) -> httpx.Response:
    headers, body = node(name, token, **changes)
    return api.client().post("/api/v1/nodes", headers=headers, json=body)


def listed(api: ServedApi, user: str = "ana") -> dict[str, Any]:
    found = api.client(user).get("/api/v1/pools").json()
    return {each["name"]: each for each in found["pools"]}


def test_a_provisioner_registers_its_pool_and_learns_which_nodes_are_wanted(api: ServedApi, pool: str) -> None:
    assert register(api, pool)["max_nodes"] == 4
    assert sync(api, pool) == {}
    look(api.platform)  # a node more is wanted, because the pool's least number is 1
    (request,) = sync(api, pool).values()
    assert (request.node, request.slots, request.end, request.created) == (f"{pool}-1", 2, False, False)
    waiting = NodeState(f"{pool}-1", PoolState.PENDING, "Unschedulable:\n0/3 nodes are available")
    assert sync(api, pool, waiting)[f"{pool}-1"].created
    shown = listed(api)[pool]
    assert (shown["asked"], shown["there"], shown["kind"], shown["note"]) == (1, 0, "process", "on this machine")
    assert [(each["node"], each["state"], each["reason"]) for each in shown["waiting"]] == [
        (f"{pool}-1", "pending", "Unschedulable: 0/3 nodes are available")
    ]
    assert sync(api, pool, trouble="the API server does not answer").keys() == {f"{pool}-1"}
    assert listed(api)[pool]["trouble"] == "the API server does not answer"


def test_a_pool_that_nobody_has_registered_is_not_found(api: ServedApi, pool: str) -> None:
    answer = joiner(api).post("/api/v1/pools/tpu/sync", json={"trouble": None, "nodes": []})
    assert (answer.status_code, answer.json()["code"]) == (404, "no-such-pool")


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("GPU", to_json_object(OFFER), "name: got 'GPU', takes lower-case letters"),
        ("gpu", to_json_object(OFFER) | {"slots": 0}, "slots: got 0, takes"),
        ("gpu", to_json_object(OFFER) | {"kind": "mesos"}, "kind: got 'mesos', takes kubernetes, slurm, process"),
        ("gpu", {"kind": "slurm", "slots": 1}, "max_nodes"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_field(api: ServedApi, name: str, body: Any, field: str) -> None:
    answer = joiner(api).put(f"{POOLS}/{name}", json=body)
    assert answer.status_code == 400 and field in answer.json()["detail"], answer.text


def test_a_node_registers_with_the_token_of_its_name_and_no_other(api: ServedApi, pool: str) -> None:
    register(api, pool)
    look(api.platform)
    token = node_token(JOIN_TOKEN, f"{pool}-1")
    for name in (f"{pool}-2", "machine", f"{pool}-1 ", ""):
        answer = join(api, name, token)
        assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated"), name
        assert "join token is wrong" in answer.json()["detail"]
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), token.upper(), token[:63], "f" * 64):
        assert join(api, f"{pool}-1", wrong).status_code == 401, wrong
    assert join(api, f"{pool}-1", token).status_code == 201
    found = api.client("ana").get(f"/api/v1/nodes/{pool}-1").json()
    assert (found["pool"], found["only_for"], found["leaving_why"]) == (pool, None, None)
    assert join(api, "machine", JOIN_TOKEN).status_code == 201


def test_the_token_of_a_node_opens_nothing_else(api: ServedApi, pool: str) -> None:
    register(api, pool)
    client = api.client(token=node_token(JOIN_TOKEN, f"{pool}-1"))
    assert client.put(f"{POOLS}/{pool}", json=to_json_object(OFFER)).status_code == 401
    assert client.post(f"{POOLS}/{pool}/sync", json={}).status_code == 401
    assert client.get("/api/v1/nodes").status_code == 401
    for body in (b"", b"no JSON", b"[]", b'{"name": 7}'):
        assert client.post("/api/v1/nodes", content=body).status_code in {400, 401}, body
    assert client.post("/api/v1/nodes", content=b"x" * (300 << 10)).status_code == 413


def test_a_registered_nodes_own_token_registers_no_node(api: ServedApi, pool: str) -> None:
    own = api.register("node-a")
    assert join(api, "node-a", own).status_code == 403


def test_a_node_that_is_not_wanted_any_more_is_refused_with_the_reason(api: ServedApi, pool: str) -> None:
    register(api, pool)
    look(api.platform)
    with api.platform.database.transaction() as tx:
        store.give_up(tx, f"{pool}-1", "it did not come within 120 s", True, api.platform.clock())
    answer = join(api, f"{pool}-1", node_token(JOIN_TOKEN, f"{pool}-1"))
    assert (answer.status_code, answer.json()["code"]) == (409, "node-not-wanted")
    assert "it did not come within 120 s" in answer.json()["detail"]


def test_a_node_says_that_it_leaves_with_its_own_token(api: ServedApi, pool: str) -> None:
    register(api, pool)
    look(api.platform)
    sync(api, pool, NodeState(f"{pool}-1", PoolState.RUNNING))
    token = join(api, f"{pool}-1", node_token(JOIN_TOKEN, f"{pool}-1")).json()["token"]
    own, path = api.client(token=token), f"/api/v1/nodes/{pool}-1/leaving"
    assert own.post(path, json={"why": "idle", "if_idle": True}).json() == {"leave": False}, "it is the pool's least"
    assert own.post(path, json={"why": "it was evicted"}).json() == {"leave": True}
    found = api.client("ana").get(f"/api/v1/nodes/{pool}-1").json()
    assert (found["health"], found["leaving_why"]) == ("draining", "it was evicted")
    assert own.post(path, json={"why": "it was evicted", "gone": True}).json() == {"leave": True}
    assert api.client("ana").get(f"/api/v1/nodes/{pool}-1").json()["health"] == "lost"
    assert sync(api, pool, NodeState(f"{pool}-1", PoolState.ENDED)) == {}
    assert api.client("ana").get(f"/api/v1/nodes/{pool}-1").status_code == 404
    assert own.post(path, json={"why": "again", "gone": True}).status_code == 401
    assert api.client("ana").post(path, json={"why": "mine"}).status_code == 403


def test_admins_set_pools_and_everybody_sees_them(api: ServedApi, pool: str) -> None:
    register(api, pool)
    admin, ana = api.client("admin"), api.client("ana")
    answer = admin.patch(f"{POOLS}/{pool}", json={"max_nodes": 2, "patience_seconds": 30}).json()
    assert answer["message"] == f"{pool} has 1 to 2 nodes, each given up if it has not come within 30 s"
    assert answer["pool"]["max_nodes"] == 2
    assert (
        admin.patch(f"{POOLS}/{pool}", json={"max_nodes": 0}).json()["message"].startswith(f"{pool} has 0 to 0 nodes")
    )
    assert listed(api)[pool]["max_nodes"] == 0
    assert ana.patch(f"{POOLS}/{pool}", json={"max_nodes": 9}).status_code == 403
    assert ana.delete(f"{POOLS}/{pool}").status_code == 403
    for body, words in (
        ({}, "got nothing to change"),
        ({"min_nodes": 3}, "min_nodes: got 3, takes at most the pool's max_nodes, 0"),
        ({"max_nodes": -1}, "max_nodes"),
        ({"slots": 3}, "slots"),
    ):
        refused = admin.patch(f"{POOLS}/{pool}", json=body)
        assert refused.status_code == 400 and words in refused.json()["detail"], refused.text


def test_a_pool_is_removed_when_its_provisioner_is_silent(api: ServedApi, pool: str) -> None:
    register(api, pool)
    admin = api.client("admin")
    refused = admin.delete(f"{POOLS}/{pool}")
    assert (refused.status_code, refused.json()["code"]) == (409, "pool-in-use")
    with api.platform.database.transaction() as tx:
        store.change(tx, store.get(tx, pool).id, seen_at=api.platform.clock() - pools.SILENT_SECONDS)
    assert admin.delete(f"{POOLS}/{pool}").status_code == 204
    assert pool not in listed(api)


def test_of_many_nodes_that_are_waited_for_the_oldest_are_listed(api: ServedApi, pool: str) -> None:
    register(api, pool)
    with api.platform.database.transaction() as tx:
        store.ask(tx, store.get(tx, pool).id, None, 103, True, 0, api.platform.clock())
    shown = listed(api)[pool]
    assert (len(shown["waiting"]), shown["more"], shown["waiting"][0]["node"]) == (100, 3, f"{pool}-1")
