"""Whatever befalls nodes, in any order, from a seed: what must hold all along, and that it comes to rest."""

from __future__ import annotations

import random

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import fleet, history
from edt_scheduler.store import allocations, attempts
from support.puppets import Puppet, Stage

NODES = 3


class Storm:
    """One job of four engines on three nodes of two slots, and what befalls them."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.dice = stage, random.Random(seed)
        self.nodes = [stage.node(f"n{number}", slots=2) for number in range(1, NODES + 1)]
        self.job = stage.submit()

    def strike(self) -> None:
        node = self.dice.choice(self.nodes)
        self.dice.choice(
            [self.kill, self.raise_in, self.bury, self.cut, self.heal, self.reboot, self.drain, self.open_up]
        )(node)

    def kill(self, node: Puppet, kind: ExitKind = ExitKind.LOST) -> None:
        for key, engines in node.running.items():
            if engines:
                node.gone(key, self.dice.choice(sorted(engines)), kind)
                if not any(peer.running.get(key) for peer in self.nodes):
                    self._over(key)
                return

    def raise_in(self, node: Puppet) -> None:
        self.kill(node, ExitKind.PULL_FAILED)

    def bury(self, node: Puppet) -> None:
        for key in list(node.running):
            node.bury(key)

    def cut(self, node: Puppet) -> None:
        """Not heard from for its lease."""
        node.cut = True
        look(self.stage.platform, self.stage.silence(node.name))

    def heal(self, node: Puppet) -> None:
        if node.cut:
            node.heal()

    def reboot(self, node: Puppet) -> None:
        node.reboot()

    def drain(self, node: Puppet) -> None:
        fleet.drain(self.stage.platform, node.name)

    def open_up(self, node: Puppet) -> None:
        fleet.uncordon(self.stage.platform, node.name)

    def pass_time(self) -> None:
        """A second: the scheduler looks, agents obey, supervisors look at their fences. In any order, or not at all."""
        self.stage.clock.pass_(self.dice.choice([0.1, 1.0, 1.0, 5.0, 60.0]))
        deeds = [lambda: look(self.stage.platform), lambda: look(self.stage.platform)]
        deeds += [node.obey for node in self.nodes if self.dice.random() < 0.8]
        self.dice.shuffle(deeds)
        for deed in deeds:
            deed()
            self.check()
        for node in self.nodes:
            node.look_at_fences()

    def check(self) -> None:
        """What must hold at any instant."""
        number = int(self.job.removeprefix("edt-"))
        with self.stage.platform.database.snapshot() as tx:
            live = attempts.live(tx, number)
            held = allocations.every_open(tx)
        alive = {key[1] for node in self.nodes for key, engines in node.running.items() if engines}
        assert len(alive) <= 1, "two attempts of a job train at once"
        if live is not None and live.kind is None:
            assert alive <= {live.fence}
            assert self.stage.fence(self.job) == live.fence
        assert len({(row.node_id, row.slot) for row in held}) == len(held)
        seqs = [event.seq for event in history.events(self.stage.platform, self.job, viewer=self.stage.admin)]
        assert seqs == list(range(1, len(seqs) + 1))

    def calm(self) -> None:
        """Everything works again: the job trains on all it may have, and nothing is left of what was."""
        for node in self.nodes:
            self.heal(node)
            self.open_up(node)
        for _ in range(12):
            self.stage.clock.pass_(61)
            for node in self.nodes:
                node.look_at_fences()
            self.stage.settle()
            self.check()
        assert self.stage.job(self.job).state is JobState.RUNNING
        fence = self.stage.job(self.job).fence
        assert {key for node in self.nodes for key in node.running} == {(self.job, fence)}
        assert sum(len(node.hosting) for node in self.nodes) == 1
        running = sum(len(engines) for node in self.nodes for engines in node.running.values())
        assert self.stage.holding() == {self.job: running}
        assert running >= 2, "a node started anew is left alone by the attempt that was there"

    def _over(self, key: tuple[str, int]) -> None:
        """The last engine is gone: whoever hosts says that it is over."""
        for node in self.nodes:
            if key in node.hosting and not node.cut:
                node.end(key, ExitKind.LOST)


def storm(stage: Stage, seed: int, strikes: int) -> None:
    weather = Storm(stage, seed)
    stage.settle()
    for _ in range(strikes):
        weather.strike()
        weather.check()
        weather.pass_time()
        weather.check()
    weather.calm()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(2, 6))])
def test_whatever_befalls_its_nodes_a_job_lives_once_and_goes_on(sqlite_stage: Stage, seed: int) -> None:
    storm(sqlite_stage, seed, strikes=25)


@pytest.mark.parametrize("seed", [100])
def test_so_on_both_databases(stage: Stage, seed: int) -> None:
    storm(stage, seed, strikes=15)
