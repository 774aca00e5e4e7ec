"""docs/protocol.md says what the package says: every message, every arrow, every state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edt_runner.coordinator.members import Phase
from edt_runner.protocol import channel
from edt_runner.protocol.data import EngineState
from edt_runner.protocol.messages import Role

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()
CLASSES = {kind.__name__: kind for kind in channel.KINDS.values()}
ARROW = re.compile(r"^\s*(\w+)->>(\w+): (\w+)$")
PARTICIPANT = re.compile(r"^\s*participant (\w+) as (.+)$")


def diagrams() -> list[list[str]]:
    """Lines of each diagram of the page."""
    return [found.splitlines() for found in re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)]


def role_of(title: str) -> Role:
    """Which process a participant's title names: "joining engine" is an engine."""
    roles = [role for role in Role if re.search(rf"\b{role.value}s?\b", title)]
    if title in {"members", "survivors"}:
        return Role.ENGINE
    assert len(roles) == 1, f"participant {title!r} is {roles}"
    return roles[0]


def arrows() -> list[tuple[Role, Role, str]]:
    """(sender, receiver, message) of every arrow."""
    found = []
    for lines in diagrams():
        roles = {match[1]: role_of(match[2]) for line in lines if (match := PARTICIPANT.match(line))}
        found += [(roles[match[1]], roles[match[2]], match[3]) for line in lines if (match := ARROW.match(line))]
    return found


def test_there_is_a_diagram_for_start_join_leave_crash_the_coordinators_death_and_the_end() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert headings[-6:] == ["Start", "Join", "Leave", "Crash", "The coordinator's death", "End"]
    for heading, text in zip(headings[-6:], re.split(r"^## .+$", PAGE, flags=re.MULTILINE)[-6:], strict=True):
        assert "```mermaid" in text, f"{heading} has no diagram"


def test_every_arrow_is_a_message_that_its_sender_sends_to_its_receiver() -> None:
    for sender, receiver, name in arrows():
        assert name in CLASSES, f"{name} is no message"
        assert sender in CLASSES[name].senders, f"{name} is not sent by the {sender}"
        assert receiver in CLASSES[name].receivers, f"{name} is not received by the {receiver}"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_message_stands_in_a_diagram(name: str) -> None:
    assert name in {name for _, _, name in arrows()}


@pytest.mark.parametrize("states", [Phase, EngineState], ids=["coordinator", "engine"])
def test_every_state_is_explained(states: type[Phase] | type[EngineState]) -> None:
    explained = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert {state.value for state in states} <= set(explained)
    assert set(explained) == {state.value for kind in (Phase, EngineState) for state in kind}
