"""Whether PyPI's ``runai`` is installed beside this package. Room: runners; standard library only."""

from __future__ import annotations

from importlib import metadata

_OTHER = "runai"
"""Name of the distribution on PyPI; ours is ``openedt``."""


def refuse_other_distribution() -> None:
    """Raise ImportError if it is there. Costs one look into each folder of ``sys.path``."""
    try:
        version = metadata.version(_OTHER)
    except metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"runai: the packages openedt and runai {version} are both installed, and both bring a module named runai, so "
        "their files have overwritten one another. Keep one of them; for OpenEDT's: pip uninstall runai, then "
        "pip install --force-reinstall --no-deps openedt",
        name="runai",
    )
