"""Nodes, as users see them and admins run them: ``/api/v1/nodes``. Room: api."""

from __future__ import annotations

from fastapi import APIRouter

from edt_api import pictures, schemas
from edt_api.context import TheHouse
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/nodes")


@router.get("")
def listing(house: TheHouse) -> list[schemas.Node]:
    """All nodes, their slots and who holds them. A cluster is shared, and an exec id is no secret."""
    return [pictures.node(each) for each in operations.nodes(house)]


@router.get("/{name}")
def get(house: TheHouse, name: str) -> schemas.Node:
    return pictures.node(operations.node(house, name))


@router.post("/{name}/cordon")
def cordon(house: TheHouse, name: str) -> schemas.Node:
    """Start nothing new there; what runs goes on."""
    return pictures.node(operations.cordon(house, name))


@router.post("/{name}/uncordon")
def uncordon(house: TheHouse, name: str) -> schemas.Node:
    """Use the node again, after a cordon or a drain."""
    return pictures.node(operations.uncordon(house, name))


@router.post("/{name}/drain")
def drain(house: TheHouse, name: str) -> schemas.Node:
    """Let everything leave it at the next boundary; nothing new starts."""
    return pictures.node(operations.drain(house, name))
