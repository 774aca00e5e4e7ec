"""The name under which WMLA 4.x notebooks import FabricModel: ``from pyedt.fabric_model import FabricModel``."""
