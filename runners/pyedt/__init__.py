"""The package of WMLA 4.x notebooks: ``from pyedt.fabric_model import FabricModel``.

It also has ``pyedt.callbacks`` and ``pyedt.emetrics``, which the packages ``callbacks`` and ``emetrics`` re-export.
"""
