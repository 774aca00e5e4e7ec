"""WMLA's base classes by their name: ``from callbacks import Callback, LoggerCallback``. They are those of
``pyedt.callbacks``.

OpenEDT itself does not import this module, because a user's own ``callbacks.py`` may hide it.
"""

from pyedt.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
