"""FabricModel under the name that WMLA 4.x notebooks use."""

from fabric_model import FabricModel

__all__ = ["FabricModel"]
