"""OpenEDT's implementation of Run:AI's library for elastic batches and gradient accumulation, with the same names.

    import runai.elastic.torch      the split of a global batch over this many GPUs, and loaders that follow it
    import runai.elastic.keras      the same for Keras 3
    import runai.ga.torch           optimizers that update after several micro-batches
    import runai.ga.keras           the same for Keras 3
    import runai.utils              Hook, Attribute, Flock, gpus, random, log

PyPI's own ``runai`` installs files of the same names in the same folder. If both are installed, the later one has
overwritten files of the other. Importing this package then raises an ImportError that explains this.
"""

from importlib import metadata as _metadata

IMPLEMENTATION = "openedt"
"""Marks this implementation; PyPI's package has no such attribute."""

__all__ = ["IMPLEMENTATION"]


def _refuse_other_distribution() -> None:
    """Raise ImportError if PyPI's ``runai`` is installed. This looks once into each folder of ``sys.path``."""
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
