"""What all shapes have in common. Room: api."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

_Item = TypeVar("_Item")


class Shown(BaseModel):
    """A picture we hand out; readable from the scheduler's views as they are."""

    model_config = ConfigDict(
        from_attributes=True,
        extra="ignore",
        json_schema_serialization_defaults_required=True,  # what we send is always there, whatever the default
    )


class Typed(BaseModel):
    """Something a person sends: a misspelt key is told, not dropped."""

    model_config = ConfigDict(extra="forbid")


class Told(BaseModel):
    """Something an agent sends: keys of a newer version are dropped."""

    model_config = ConfigDict(extra="ignore")


class Page(Shown, Generic[_Item]):
    """A part of a list."""

    items: list[_Item]
    next: str | None
    """``cursor`` of the page that follows; None: this is the last."""
