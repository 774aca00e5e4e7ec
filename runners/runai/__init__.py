"""Run:AI's library for elastic batches and gradient accumulation, under its names. Room: runners; no framework.

    import runai.elastic.torch      what a global batch means on this many GPUs, and loaders that give it
    import runai.elastic.keras      the same for Keras 3
    import runai.ga.torch           optimizers that update after several micro-batches
    import runai.ga.keras           the same for Keras 3
    import runai.utils              Hook, Attribute, Flock, gpus, random, log

It is OpenEDT's implementation. PyPI's own ``runai`` installs files of the same names in the same folder, so whichever
was installed last has overwritten half of the other: importing this package beside it is an error that says so.
"""

from runai._clash import refuse_other_distribution

IMPLEMENTATION = "openedt"
"""Whose implementation of these names this is; PyPI's package has no such attribute."""

__all__ = ["IMPLEMENTATION"]

refuse_other_distribution()
