"""Pools over HTTP: provisioners register and sync them, nodes join by a token of their own, people see and set them."""

from __future__ import annotations

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
POOL = "/api/v1/pools/gpu"


def joiner(api: ServedApi) -> httpx.Client:
    return api.client(token=JOIN_TOKEN)


def register(api: ServedApi, offer: PoolOffer = OFFER, name: str = "gpu") -> dict[str, Any]:
    answer = joiner(api).put(f"/api/v1/pools/{name}", json=to_json_object(offer))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sync(api: ServedApi, *states: NodeState, trouble: str | None = None) -> dict[str, NodeRequest]:
    nodes = [to_json_object(each) for each in states] if trouble is None else None
    answer = joiner(api).post(f"{POOL}/sync", json={"trouble": trouble, "nodes": nodes})
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


def test_a_provisioner_registers_its_pool_and_learns_which_nodes_are_wanted(fresh_api: ServedApi) -> None:
    assert register(fresh_api)["max_nodes"] == 4
    assert sync(fresh_api) == {}
    look(fresh_api.platform)  # a node more is wanted, because the pool's least number is 1
    (request,) = sync(fresh_api).values()
    assert (request.node, request.slots, request.end, request.created) == ("gpu-1", 2, False, False)
    waiting = NodeState("gpu-1", PoolState.PENDING, "Unschedulable:\n0/3 nodes are available")
    assert sync(fresh_api, waiting)["gpu-1"].created
    pool = listed(fresh_api)["gpu"]
    assert (pool["asked"], pool["there"], pool["kind"], pool["note"]) == (1, 0, "process", "on this machine")
    assert [(each["node"], each["state"], each["reason"]) for each in pool["waiting"]] == [
        ("gpu-1", "pending", "Unschedulable: 0/3 nodes are available")
    ]
    assert sync(fresh_api, trouble="the API server does not answer").keys() == {"gpu-1"}
    assert listed(fresh_api)["gpu"]["trouble"] == "the API server does not answer"


def test_a_pool_that_nobody_has_registered_is_not_found(fresh_api: ServedApi) -> None:
    answer = joiner(fresh_api).post("/api/v1/pools/tpu/sync", json={"trouble": None, "nodes": []})
    assert (answer.status_code, answer.json()["code"]) == (404, "no-such-pool")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/pools/GPU", to_json_object(OFFER), "name: got 'GPU', takes lower-case letters"),
        (POOL, to_json_object(OFFER) | {"slots": 0}, "slots: got 0, takes"),
        (POOL, to_json_object(OFFER) | {"kind": "mesos"}, "kind: got 'mesos', takes kubernetes, slurm, process"),
        (POOL, {"kind": "slurm", "slots": 1}, "max_nodes"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_field(api: ServedApi, path: str, body: Any, field: str) -> None:
    answer = joiner(api).put(path, json=body)
    assert answer.status_code == 400 and field in answer.json()["detail"], answer.text


def test_a_node_registers_with_the_token_of_its_name_and_no_other(fresh_api: ServedApi) -> None:
    register(fresh_api)
    look(fresh_api.platform)
    token = node_token(JOIN_TOKEN, "gpu-1")
    for name in ("gpu-2", "machine", "gpu-1 ", ""):
        answer = join(fresh_api, name, token)
        assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated"), name
        assert "join token is wrong" in answer.json()["detail"]
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), token.upper(), token[:63], "f" * 64):
        assert join(fresh_api, "gpu-1", wrong).status_code == 401, wrong
    assert join(fresh_api, "gpu-1", token).status_code == 201
    found = fresh_api.client("ana").get("/api/v1/nodes/gpu-1").json()
    assert (found["pool"], found["only_for"], found["leaving_why"]) == ("gpu", None, None)
    assert join(fresh_api, "machine", JOIN_TOKEN).status_code == 201


def test_the_token_of_a_node_opens_nothing_else(fresh_api: ServedApi) -> None:
    register(fresh_api)
    client = fresh_api.client(token=node_token(JOIN_TOKEN, "gpu-1"))
    assert client.put(POOL, json=to_json_object(OFFER)).status_code == 401
    assert client.post(f"{POOL}/sync", json={}).status_code == 401
    assert client.get("/api/v1/nodes").status_code == 401
    for body in (b"", b"no JSON", b"[]", b'{"name": 7}'):
        assert client.post("/api/v1/nodes", content=body).status_code in {400, 401}, body
    assert client.post("/api/v1/nodes", content=b"x" * (300 << 10)).status_code == 413


def test_a_registered_nodes_own_token_registers_no_node(fresh_api: ServedApi) -> None:
    own = fresh_api.register("node-a")
    assert join(fresh_api, "node-a", own).status_code == 403


def test_a_node_that_is_not_wanted_any_more_is_refused_with_the_reason(fresh_api: ServedApi) -> None:
    register(fresh_api)
    look(fresh_api.platform)
    with fresh_api.platform.database.transaction() as tx:
        store.give_up(tx, "gpu-1", "it did not come within 120 s", True, fresh_api.platform.clock())
    answer = join(fresh_api, "gpu-1", node_token(JOIN_TOKEN, "gpu-1"))
    assert (answer.status_code, answer.json()["code"]) == (409, "node-not-wanted")
    assert "it did not come within 120 s" in answer.json()["detail"]


def test_a_node_says_that_it_leaves_with_its_own_token(fresh_api: ServedApi) -> None:
    register(fresh_api)
    look(fresh_api.platform)
    sync(fresh_api, NodeState("gpu-1", PoolState.RUNNING))
    token = join(fresh_api, "gpu-1", node_token(JOIN_TOKEN, "gpu-1")).json()["token"]
    own, path = fresh_api.client(token=token), "/api/v1/nodes/gpu-1/leaving"
    assert own.post(path, json={"why": "idle", "if_idle": True}).json() == {"leave": False}, "it is the pool's least"
    assert own.post(path, json={"why": "it was evicted"}).json() == {"leave": True}
    found = fresh_api.client("ana").get("/api/v1/nodes/gpu-1").json()
    assert (found["health"], found["leaving_why"]) == ("draining", "it was evicted")
    assert own.post(path, json={"why": "it was evicted", "gone": True}).json() == {"leave": True}
    assert fresh_api.client("ana").get("/api/v1/nodes/gpu-1").json()["health"] == "lost"
    assert sync(fresh_api, NodeState("gpu-1", PoolState.ENDED)) == {}
    assert fresh_api.client("ana").get("/api/v1/nodes/gpu-1").status_code == 404
    assert own.post(path, json={"why": "again", "gone": True}).status_code == 401
    assert fresh_api.client("ana").post(path, json={"why": "mine"}).status_code == 403


def test_admins_set_pools_and_everybody_sees_them(fresh_api: ServedApi) -> None:
    register(fresh_api)
    admin, ana = fresh_api.client("admin"), fresh_api.client("ana")
    answer = admin.patch(POOL, json={"max_nodes": 2, "patience_seconds": 30}).json()
    assert answer["message"] == "gpu has 1 to 2 nodes, each given up if it has not come within 30 s"
    assert answer["pool"]["max_nodes"] == 2
    assert admin.patch(POOL, json={"max_nodes": 0}).json()["message"].startswith("gpu has 0 to 0 nodes")
    assert listed(fresh_api)["gpu"]["max_nodes"] == 0
    assert ana.patch(POOL, json={"max_nodes": 9}).status_code == 403
    assert ana.delete(POOL).status_code == 403
    for body, words in (
        ({}, "got nothing to change"),
        ({"min_nodes": 3}, "min_nodes: got 3, takes at most the pool's max_nodes, 0"),
        ({"max_nodes": -1}, "max_nodes"),
        ({"slots": 3}, "slots"),
    ):
        refused = admin.patch(POOL, json=body)
        assert refused.status_code == 400 and words in refused.json()["detail"], refused.text


def test_a_pool_is_removed_when_its_provisioner_is_silent(fresh_api: ServedApi) -> None:
    register(fresh_api)
    admin = fresh_api.client("admin")
    refused = admin.delete(POOL)
    assert (refused.status_code, refused.json()["code"]) == (409, "pool-in-use")
    with fresh_api.platform.database.transaction() as tx:
        store.change(tx, store.get(tx, "gpu").id, seen_at=fresh_api.platform.clock() - pools.SILENT_SECONDS)
    assert admin.delete(POOL).status_code == 204
    assert listed(fresh_api) == {}


def test_of_many_nodes_that_are_waited_for_the_oldest_are_listed(fresh_api: ServedApi) -> None:
    register(fresh_api)
    with fresh_api.platform.database.transaction() as tx:
        store.ask(tx, store.get(tx, "gpu").id, None, 103, True, 0, fresh_api.platform.clock())
    pool = listed(fresh_api)["gpu"]
    assert (len(pool["waiting"]), pool["more"], pool["waiting"][0]["node"]) == (100, 3, "gpu-1")
