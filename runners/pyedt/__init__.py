"""The package name from which WMLA 4.x notebooks import FabricModel: ``from pyedt.fabric_model import FabricModel``."""
