"""``from pyedt.fabric_model import FabricModel``."""

from fabric_model import FabricModel

__all__ = ["FabricModel"]
