"""Which container images a job may name, and which of them nodes are asked to have ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edt_scheduler.errors import ImageInvalid, NoSuchImage, SubmissionInvalid
from edt_scheduler.model.images import OURS, canonical, matches
from edt_scheduler.operations import accounts, agents, fleet, images
from edt_scheduler.operations.images import PULL_AGAIN_SECONDS, ask_for_pulls
from support.puppets import Puppet, Stage

OWN = "registry.example.com/team/own:1"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("python", "python:latest"),
        ("docker.io/library/python:3.12", "python:3.12"),
        ("docker.io/openedt/runner-torch", "openedt/runner-torch:latest"),
        ("127.0.0.1:5000/own", "127.0.0.1:5000/own:latest"),
        ("own@sha256:0123", "own@sha256:0123"),
    ],
)
def test_an_image_has_one_name_however_it_is_written(written: str, name: str) -> None:
    assert canonical(written) == name


@pytest.mark.parametrize(
    ("image", "patterns", "allowed"),
    [
        ("openedt/runner-torch:1.2", OURS, True),
        ("docker.io/openedt/runner-torch", OURS, True),
        ("openedt/runner-torch-of-somebody:1", OURS, False),
        ("registry.example.com/openedt/runner-torch:1", OURS, False),
        (OWN, f"{OURS}, registry.example.com/team/*", True),
        ("registry.example.com/other/own:1", "registry.example.com/team/*", False),
        ("anything", "*", True),
        ("anything", "", False),
    ],
)
def test_patterns_say_which_images_anybody_may_name(image: str, patterns: str, allowed: bool) -> None:
    assert matches(image, patterns) is allowed


class TestAllowed:
    def test_a_user_names_only_what_an_admin_has_allowed(self, stage: Stage) -> None:
        ana = accounts.add_user(stage.platform, "ana", "hash")
        with pytest.raises(SubmissionInvalid, match=r"edt images allow registry\.example\.com/team/own:1"):
            stage.submit(owner=ana, image=OWN)
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=False)
        stage.submit(owner=ana, image=OWN)
        images.forbid_image(stage.platform, OWN)
        with pytest.raises(SubmissionInvalid):
            stage.submit(owner=ana, image=OWN)

    def test_ours_and_what_an_admin_has_used_are_allowed(self, stage: Stage) -> None:
        ana = accounts.add_user(stage.platform, "ana", "hash")
        stage.submit(owner=ana, image="openedt/runner-torch:2")
        stage.submit(image="own")
        stage.submit(owner=ana, image="docker.io/library/own:latest")
        [listed] = images.images(stage.platform, limit=10)
        assert (listed.name, listed.allowed_by, listed.everywhere) == ("own:latest", "admin", False)

    def test_a_setting_may_allow_all(self, stage: Stage) -> None:
        ana = accounts.add_user(stage.platform, "ana", "hash")
        platform = replace(stage.platform, settings=stage.platform.settings.model_copy(update={"images": "*"}))
        Stage(platform, stage.clock, ana).submit(image=OWN)

    def test_what_is_no_image_and_what_was_never_allowed_are_named(self, stage: Stage) -> None:
        with pytest.raises(ImageInvalid, match="name: '; rm -rf'"):
            images.allow_image(stage.platform, "; rm -rf", by=stage.admin, everywhere=True)
        with pytest.raises(ImageInvalid, match="Team"):  # Docker takes no capitals
            images.allow_image(stage.platform, "registry/Team/own:1", by=stage.admin, everywhere=True)
        with pytest.raises(NoSuchImage, match=OWN):
            images.forbid_image(stage.platform, OWN)


class TestReady:
    @staticmethod
    def asked(node: Puppet) -> tuple[str, ...]:
        return agents.assignments(node.platform, node.name).images

    def test_nodes_that_start_containers_are_asked_once_and_their_answers_are_shown(self, stage: Stage) -> None:
        plain, docker = stage.node("n1"), stage.node("n2", launcher="docker")
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=True)
        images.allow_image(stage.platform, "other", by=stage.admin, everywhere=False)
        before = agents.assignments_version(stage.platform, "n2")
        assert ask_for_pulls(stage.platform) == 1
        assert agents.assignments_version(stage.platform, "n2") > before, "who polls is answered at once"
        assert (self.asked(plain), self.asked(docker)) == ((), (OWN,))
        assert ask_for_pulls(stage.platform) == 0
        images.record_pull(stage.platform, "n2", OWN, "")
        assert self.asked(docker) == ()
        [there] = images.images(stage.platform, limit=1)[0].nodes
        assert (there.node, there.done_at, there.error) == ("n2", stage.clock(), None)

    def test_a_node_that_could_not_is_asked_again_after_a_while(self, stage: Stage) -> None:
        node = stage.node("n2", launcher="docker")
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=True)
        ask_for_pulls(stage.platform)
        images.record_pull(stage.platform, "n2", OWN, "it cannot be pulled: denied")
        assert images.images(stage.platform, limit=1)[0].nodes[0].error == "it cannot be pulled: denied"
        stage.clock.pass_(PULL_AGAIN_SECONDS)
        assert (ask_for_pulls(stage.platform), self.asked(node)) == (0, ())
        stage.clock.pass_(1)
        assert (ask_for_pulls(stage.platform), self.asked(node)) == (1, (OWN,))

    def test_a_node_whose_agent_begins_anew_is_asked_anew(self, stage: Stage) -> None:
        node = stage.node("n2", launcher="docker")
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=True)
        ask_for_pulls(stage.platform)
        images.record_pull(stage.platform, "n2", OWN, "")
        node.join()
        assert (ask_for_pulls(stage.platform), self.asked(node)) == (1, (OWN,))

    def test_of_an_image_that_is_no_longer_to_be_everywhere_nobody_is_asked(self, stage: Stage) -> None:
        node = stage.node("n2", launcher="docker")
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=True)
        ask_for_pulls(stage.platform)
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=False)
        assert self.asked(node) == ()

    def test_of_an_image_that_is_no_longer_allowed_nobody_is_asked(self, stage: Stage) -> None:
        node = stage.node("n2", launcher="docker")
        images.allow_image(stage.platform, OWN, by=stage.admin, everywhere=True)
        ask_for_pulls(stage.platform)
        images.forbid_image(stage.platform, OWN)
        assert self.asked(node) == ()
        images.record_pull(stage.platform, "n2", OWN, "")
        assert images.images(stage.platform, limit=1) == []


def test_no_attempt_spans_a_node_whose_containers_others_cannot_reach(stage: Stage) -> None:
    for name in ("n1", "n2"):
        stage.node(name, slots=2, launcher="docker", alone=True)
    stage.node("n3", slots=1)
    job = stage.submit(workers=4)
    stage.settle()
    assert stage.holding() == {job: 2}
    assert len({node.name for node in fleet.nodes(stage.platform) if any(slot.exec_id for slot in node.slots)}) == 1
