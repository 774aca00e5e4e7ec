"""`edt pools`, `edt pool`, and what `edt nodes` says of nodes of a pool."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_contract.pools import NodeState, PoolOffer, PoolState
from edt_scheduler.operations import accounts, agents, pools
from edt_scheduler.store import pools as store
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.typed import Done, edt


class Typist:
    """Types commands at an API that has one pool, with a node that is there and one that is waited for."""

    def __init__(self, api: ServedApi, folder: Path) -> None:
        self.api, self._folder = api, folder
        offer = PoolOffer(kind="slurm", slots=2, max_nodes=4, per_job=False, device="gpu", model="NVIDIA H200")
        pools.register(api.platform, "night", offer)
        with api.platform.database.transaction() as tx:
            store.ask(tx, store.get(tx, "night").id, None, 2, True, 0, api.platform.clock() - 70)
        states = [NodeState("night-1", PoolState.RUNNING), NodeState("night-2", PoolState.PENDING, "(Priority)")]
        pools.sync(api.platform, "night", states, None)
        Puppet(api.platform, "night-1", slots=2).join()

    def type(self, *words: str, user: str = "admin") -> Done:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
        token = tokens.issue(self.api.platform, accounts.user(self.api.platform, user), 600)
        set_ = {"EDT_API": self.api.url, "EDT_TOKEN": token, "NO_COLOR": "1", "COLUMNS": "200"}
        return edt([*words], {**kept, **set_}, self._folder)

    def said(self, *words: str, user: str = "admin") -> str:
        done = self.type(*words, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, user: str = "admin") -> str:
        done = self.type(*words, user=user)
        assert done.returncode in {1, 2} and not done.stdout, done.stdout
        return done.stderr.removeprefix("edt: ").strip()


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    folder = tmp_path_factory.mktemp("pools")
    with served(folder / "home") as api:
        yield Typist(api, folder)


def test_pools_are_shown_with_what_is_waited_for_and_why(typist: Typist) -> None:
    pool, _, head, waiting = [line.split() for line in typist.said("pools", user="ana").splitlines()[1:]]
    assert pool[:8] == ["night", "slurm", "1", "1", "0", "4", "2", "nvidia"]
    assert head == ["NODE", "POOL", "JOB", "STATE", "WAITS", "WHY"]
    assert (waiting[:3], waiting[-1]) == (["night-2", "night", "pending"], "(Priority)")
    assert re.fullmatch(r"7\ds|\dm.*", waiting[3])
    shown = json.loads(typist.said("pools", "-o", "json"))["pools"][0]
    assert (shown["there"], [each["node"] for each in shown["waiting"]]) == (1, ["night-2"])


def test_nodes_say_which_pool_they_are_of_and_why_they_leave(typist: Typist) -> None:
    agents.leaving(typist.api.platform, "night-1", "its time limit ends it soon")
    said = typist.said("nodes")
    assert "POOL" in said and "night-1 leaves: its time limit ends it soon" in said


@pytest.mark.extended
def test_an_admin_sets_a_pool_and_removes_it_only_when_it_has_ended(typist: Typist) -> None:
    assert typist.said("pool", "set", "night", "--max", "3", "--patience", "45") == (
        "night has 0 to 3 nodes, each given up if it has not come within 45 s\n"
    )
    assert json.loads(typist.said("pool", "set", "night", "--min", "1", "-o", "json"))["min_nodes"] == 1
    assert typist.refused("pool", "set", "night") == "say what to set: --max, --min or --patience"
    assert typist.refused("pool", "set", "night", "--max", "1", user="ana") == "this is open to an admin only"
    assert typist.refused("pool", "set", "day", "--max", "1") == "no pool 'day': list them with `edt pools`"
    assert "its provisioner was heard from" in typist.refused("pool", "remove", "night")
