"""Why a module of the original is not here, and what does its work now. Room: runners; standard library only."""

from __future__ import annotations


def gone(module: str, instead: str) -> ImportError:
    """The error that importing ``module`` raises."""
    return ImportError(f"{module} is not part of OpenEDT's runai. Instead: {instead}", name=module)
