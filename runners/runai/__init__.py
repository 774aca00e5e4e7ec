"""Run:AI's library for elastic batches and gradient accumulation, under its names.

    import runai.elastic.torch      what a global batch means on this many GPUs, and loaders that give it
    import runai.elastic.keras      the same for Keras 3
    import runai.ga.torch           optimizers that update after several micro-batches
    import runai.ga.keras           the same for Keras 3
    import runai.utils              Hook, Attribute, Flock, gpus, random, log

It is OpenEDT's implementation. PyPI's own ``runai`` installs files of the same names in the same folder, so whichever
was installed last has overwritten half of the other: importing this package beside it is an error that says so.
"""

from importlib import metadata as _metadata

IMPLEMENTATION = "openedt"
"""Whose implementation of these names this is; PyPI's package has no such attribute."""

__all__ = ["IMPLEMENTATION"]


def _refuse_other_distribution() -> None:
    """Raise ImportError if PyPI's ``runai`` is installed. It costs one look into each folder of ``sys.path``."""
    try:
        version = _metadata.version("runai")
    except _metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"runai: the packages openedt and runai {version} are both installed, and both bring a module named runai, so "
        "their files have overwritten one another. Keep one of them; for OpenEDT's: pip uninstall runai, then "
        "pip install --force-reinstall --no-deps openedt",
        name="runai",
    )


_refuse_other_distribution()
