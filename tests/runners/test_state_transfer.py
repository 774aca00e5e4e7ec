"""Moving a training's state: who copies what from a GPU, and when."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from edt_runner import host_copies
from edt_runner.adapter import Adapter, State
from edt_runner.comm import state_transfer
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.errors import PeerLost
from support.groups import connected
from support.late_copies import StandIn
from support.waiting import until

cuda: Any = torch.cuda
PIECE = 1000


class Replica:
    """What receives a state: tensors of the same shapes, full of zeros."""

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        self.tensors = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
        self.is_whole = False

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        return self.tensors

    def end_import(self) -> None:
        self.is_whole = True


def state(device: str = "cpu", scale: int = 1) -> dict[str, Tensor]:
    """Tensors of many pieces, of one, and of none; whole and half numbers; one that is not contiguous."""
    generator = torch.Generator().manual_seed(0)
    made = {
        "large": torch.randn(2171 * scale, generator=generator),
        "integers": torch.arange(700 * scale),
        "turned": torch.randn(40, 30 * scale, generator=generator).t(),
        "halves": torch.randn(501, generator=generator).to(torch.bfloat16),
        "none": torch.empty(0),
        "one": torch.tensor(3.5),
        "channels": torch.randn(4, 5, 6, 7, generator=generator).to(memory_format=torch.channels_last),
    }
    return {name: tensor if name == "integers" else tensor.to(device) for name, tensor in made.items()}


def transfer(found: Sequence[Group], tensors: Mapping[str, Tensor], sources: int) -> list[Replica]:
    """Send a state from the first ranks to all others, which all do this at the same time."""
    receivers = list(range(sources, len(found)))
    replicas = [Replica(tensors) for _ in receivers]

    def run(rank: int) -> Any:
        if rank < sources:
            sending = found[rank].send_state(State({"a": 1}, tensors), {"offset": 7}, list(range(sources)), receivers)
            return sending()
        return found[rank].receive_state(cast(Adapter, replicas[rank - sources]), list(range(sources)))

    with ThreadPoolExecutor(len(found)) as pool:
        results = list(pool.map(run, range(len(found))))
    assert results[sources:] == [{"offset": 7}] * len(receivers)
    return replicas


def check(replicas: Sequence[Replica], tensors: Mapping[str, Tensor]) -> None:
    for replica in replicas:
        assert replica.is_whole
        for name, tensor in tensors.items():
            assert replica.tensors[name].stride() == tensor.stride()
            assert torch.equal(replica.tensors[name], tensor), name


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_transfer, "PIECE_BYTES", PIECE)


def away(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("sources", [1, 3])
def test_in_host_memory_every_receiver_gets_the_bytes_of_every_tensor(sources: int) -> None:
    tensors = state()
    with connected(sources + 2) as (_, found):
        check(transfer(found, tensors, sources), tensors)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("sources", [1, 3])
def test_a_source_copies_only_its_share_from_the_gpu_through_little_memory(
    sources: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, tensors = StandIn(monkeypatch, away), state()
    with connected(sources + 2) as (_, found):
        check(transfer(found, tensors, sources), tensors)
    size = sum(tensor.nbytes for tensor in tensors.values() if away(tensor))
    giving, taking = [each for each in gpu.made if each.to_host], [each for each in gpu.made if each.to_device]
    assert (len(giving), len(taking)) == (sources, 2)
    assert sum(each.to_host for each in giving) == size
    assert all(abs(each.to_host - size / sources) <= len(tensors) * PIECE for each in giving)
    assert all(each.to_device == size and not each.to_host for each in taking)
    assert all(each.memory_bytes <= 3 * PIECE and each.moments == ["now"] for each in gpu.made)


@pytest.mark.usefixtures("small_pieces")
def test_whoever_begins_to_send_waits_for_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, tensors = StandIn(monkeypatch, away), state()
    gpu.may_end.clear()
    with connected(2) as (_, (first, second)), ThreadPoolExecutor(1) as pool:
        finish = first.send_state(State({}, tensors), {}, [0], [1])
        replica = Replica(tensors)
        taking: Any = second.receive_state
        receiving = pool.submit(taking, replica, [0])
        until(lambda: gpu.made, what="the copies have begun")
        assert not receiving.done()
        gpu.may_end.set()
        finish()
        receiving.result(30)
        check([replica], tensors)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("away_from", ["sender", "receiver"])
def test_a_transfer_whose_connections_are_shut_ends_and_holds_nothing(
    away_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, tensors = StandIn(monkeypatch, away), state()
    if away_from == "receiver":
        gpu.may_end.clear()

    def lose(planes: Sequence[DataPlane], first: Group, second: Group) -> None:
        finish = first.send_state(State({}, tensors), {}, [0], [1])
        taking: Any = second.receive_state
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(taking, Replica(tensors), [0]) if away_from == "receiver" else pool.submit(finish)
            until(lambda: gpu.made, what="the copies have begun")
            for own, other in itertools.permutations(planes):
                own.shut(other.addresses)
            gpu.may_end.set()
            with pytest.raises(PeerLost):
                waiting.result(30)
        if away_from == "receiver":
            with pytest.raises(PeerLost):
                finish()

    with connected(2) as (planes, (first, second)):
        lose(planes, first, second)
        last = weakref.ref(tensors.pop("large"))
        until(lambda: gc.collect() is not None and last() is None, what="nobody holds the state any more")


@pytest.mark.cuda
@pytest.mark.parametrize("sources", [1, 2])
def test_a_state_moves_from_gpu_to_gpu_and_keeps_its_bits(sources: int) -> None:
    tensors = state("cuda", scale=3000)
    with connected(sources + 1) as (_, found):
        for _ in range(2):  # the second time the pinned memory is there already
            check(transfer(found, tensors, sources), tensors)


@pytest.mark.cuda
def test_kernels_that_are_queued_hold_up_no_transfer_and_no_sender() -> None:
    """The state is what it was before them; they write other memory."""
    tensors = state("cuda", scale=300)
    expected = {name: tensor.clone() for name, tensor in tensors.items()}
    with connected(2) as (_, (first, second)), ThreadPoolExecutor(1) as pool:
        replica = Replica({name: tensor.cpu() for name, tensor in tensors.items()})
        transfer([first, second], tensors, 1)  # what is only made once, is made now
        torch.cuda.synchronize()
        exported = State({}, tensors, {}, host_copies.moment(tensors.values()))
        cuda._sleep(4_000_000_000)  # two seconds or more
        after = torch.cuda.current_stream().record_event()
        begun = time.monotonic()
        finish = first.send_state(exported, {}, [0], [1])
        assert time.monotonic() - begun < 0.5
        taking: Any = second.receive_state
        pool.submit(taking, replica, [0]).result(30)
        finish()
        assert not after.query(), "the transfer has waited for the kernels"
    for name, tensor in expected.items():
        assert torch.equal(replica.tensors[name], tensor.cpu())
