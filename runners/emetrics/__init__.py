"""WMLA's writer of metrics by its name: ``from emetrics import EMetrics``. The class itself is in ``pyedt.emetrics``.

OpenEDT itself does not import this module, because a user's own ``emetrics.py`` may hide it.
"""

from pyedt.emetrics import EMetrics

__all__ = ["EMetrics"]
