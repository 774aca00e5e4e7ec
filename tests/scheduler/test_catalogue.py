"""Entries of the framework catalogue: what a file may say, and what is told of one that says it wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edt_contract.encoding import from_json_object, to_json_object
from edt_contract.gang import Processes
from edt_scheduler.errors import FrameworkInvalid, NoSuchFramework, SubmissionInvalid
from edt_scheduler.model import catalogue
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.model.jobs import DefaultLog
from edt_scheduler.operations import accounts, frameworks, images
from support.puppets import Stage

GANG: dict[str, Any] = {"name": "mine", "command": ["mpirun", "{python}", "{main}"]}
ELASTIC: dict[str, Any] = {"name": "mine", "elastic": True, "backend": "pytorch"}


def test_the_built_in_entries_are_wmlas_frameworks() -> None:
    assert list(catalogue.built_in()) == [
        "edtPyTorch", "edtTensorflow", "distPyTorch", "disttensorflow", "PyTorch", "tensorflow"
    ]  # fmt: skip
    elastic = [each for each in catalogue.built_in().values() if each.elastic]
    assert [each.gang() for each in elastic] == [None, None]
    assert [each.default_log for each in elastic] == [DefaultLog.STEPS] * 2


def test_a_short_entry_gets_what_suits_most_gangs() -> None:
    entry = catalogue.read(GANG)
    assert (entry.app_name, entry.backend, entry.processes) == ("mine", "pytorch", Processes.WORKER)
    assert (entry.max_workers, entry.default_log, entry.model_folder) == (0, DefaultLog.OUTPUT, True)
    assert (entry.image, entry.python_home, entry.rendezvous, entry.environ) == ("", "", (), {})


def test_an_entry_is_the_same_after_it_was_stored() -> None:
    written = {"processes": "device", "rendezvous": ["torch", "mpi"], "environ": {"A": "b"}, "default_log": "steps"}
    for entry in (catalogue.read(GANG | written), *catalogue.built_in().values()):
        assert from_json_object(Framework, to_json_object(entry)) == entry


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ([], "entry: it takes a table"),
        ({}, "name: it is missing"),
        ({"name": "a b"}, "name: got 'a b'; it takes a name of letters"),
        ({"name": "mine"}, 'command: it is missing; it takes a list of words such as ["{python}"'),
        (GANG | {"command": "mpirun x"}, "command: it takes a list"),
        (GANG | {"command": ["bash", "-c", "exec {main}"]}, "command: in 'exec {main}' nothing is replaced"),
        (GANG | {"command": ["x", "{script}"]}, "command: in '{script}' nothing is replaced"),
        (GANG | {"command": ["a", 1]}, "command: each word is a text"),
        (GANG | {"command": ["x" * 4096] * 5}, "entry: it is too long"),
        (GANG | {"command": ["a", "\ud800"]}, "command: each word is a text"),
        (GANG | {"\ud800": 1}, "\\ud800: no such key"),
        (GANG | {"comand": []}, "comand: no such key; an entry has name, description"),
        (GANG | {"processes": "slot"}, "processes: got 'slot'; it takes device or worker or job"),
        (GANG | {"rendezvous": "torch"}, "rendezvous: it takes a list of torch or tensorflow or mpi"),
        (GANG | {"rendezvous": ["nccl"]}, "rendezvous: it takes a list"),
        (GANG | {"environ": ["A=b"]}, "environ: it takes a table of texts"),
        (GANG | {"environ": {"A B": "c"}}, "environ: 'A B' is no name of a variable"),
        (GANG | {"environ": {"A": 1}}, "environ: the value of A is no text"),
        (GANG | {"environ": {"A": "\ud800"}}, "environ: the value of A is no text"),
        (GANG | {"environ": {"EDT_LIFE": "1"}}, "environ: EDT_LIFE is the platform's own variable"),
        (GANG | {"max_workers": -1}, "max_workers: it takes a whole number"),
        (GANG | {"max_workers": True}, "max_workers: it takes a whole number"),
        (GANG | {"worker_memory": "lots"}, "worker_memory: got 'lots'; it takes a size"),
        (GANG | {"image": "Not An Image"}, "image: got 'Not An Image'; it takes a container image"),
        (GANG | {"python_home": "envs/ray"}, "python_home: got 'envs/ray'; it takes a whole path"),
        (GANG | {"python_home": "/x", "image": "a:1"}, "python_home: it is a folder of the nodes"),
        (GANG | {"default_log": "stdout"}, "default_log: got 'stdout'; it takes steps or output"),
        (GANG | {"model_folder": "no"}, "model_folder: it takes true or false, without quotes"),
        (GANG | {"backend": "jax"}, "backend: got 'jax'; it takes pytorch or tensorflow"),
        (GANG | {"description": "two\nlines"}, "description: it takes a text of one line"),
        (ELASTIC | {"command": ["x"]}, "command: it has no meaning for an elastic framework"),
        (ELASTIC | {"max_workers": 2}, "max_workers: it has no meaning"),
        ({"name": "mine", "elastic": True}, "backend: an elastic framework needs it"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_key_and_what_it_takes(entry: object, why: str) -> None:
    with pytest.raises(FrameworkInvalid) as refused:
        catalogue.read(entry)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize("value", [None, 1, 1.5, "x" * 5000, "\0", [], [[]], {}, {"a": []}, "\ud800"])
def test_whatever_stands_behind_a_key_is_taken_or_refused_in_a_sentence(value: object) -> None:
    for key in to_json_object(catalogue.read(GANG)):
        try:
            catalogue.read(GANG | {key: value})
        except FrameworkInvalid as refused:
            assert refused.field == key


class TestAddedEntries:
    def test_one_is_found_until_it_is_removed(self, stage: Stage) -> None:
        assert frameworks.find(stage.platform, "mine") is None
        added = frameworks.add_framework(stage.platform, GANG, by=stage.admin)
        assert (added.added_by, added.entry) == (stage.admin.name, frameworks.find(stage.platform, "mine"))
        assert frameworks.frameworks(stage.platform)[-1] == added
        frameworks.remove_framework(stage.platform, "mine")
        assert frameworks.find(stage.platform, "mine") is None
        with pytest.raises(NoSuchFramework):
            frameworks.remove_framework(stage.platform, "mine")

    def test_a_built_in_name_cannot_be_taken_or_removed(self, stage: Stage) -> None:
        with pytest.raises(FrameworkInvalid, match="name: PyTorch is built in"):
            frameworks.add_framework(stage.platform, GANG | {"name": "PyTorch"}, by=stage.admin)
        with pytest.raises(FrameworkInvalid, match="name: edtPyTorch is built in"):
            frameworks.remove_framework(stage.platform, "edtPyTorch")

    def test_there_is_an_end_to_them_but_those_that_are_there_can_be_replaced(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(frameworks, "MOST_ADDED", 1)
        frameworks.add_framework(stage.platform, GANG, by=stage.admin)
        with pytest.raises(FrameworkInvalid, match="remove one first"):
            frameworks.add_framework(stage.platform, GANG | {"name": "other"}, by=stage.admin)
        frameworks.add_framework(stage.platform, GANG | {"description": "changed"}, by=stage.admin)
        found = frameworks.find(stage.platform, "mine")
        assert found is not None and found.description == "changed"

    def test_its_image_is_allowed_to_all_users_by_that(self, stage: Stage) -> None:
        user = accounts.add_user(stage.platform, "bob", "")
        with pytest.raises(SubmissionInvalid):
            images.check_image(stage.platform, "team/ray:2", user)
        frameworks.add_framework(stage.platform, GANG | {"image": "team/ray:2"}, by=stage.admin)
        images.check_image(stage.platform, "team/ray:2", user)


def test_every_built_in_entry_is_a_file_named_after_it() -> None:
    folder = Path(catalogue.__file__).parents[1] / "catalogue"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(catalogue.built_in())
