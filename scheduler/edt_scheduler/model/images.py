"""Names of container images, and which of them are allowed. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

OURS = "openedt/runner-torch:*,openedt/runner-tensorflow:*"
"""The images that this project builds, as patterns."""
LONGEST = 255
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_NAME = re.compile(
    rf"(?:{_HOST}(?:\.{_HOST})*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(?:@[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,128})?"
)


def is_name(text: str) -> bool:
    """Whether Docker, containerd and Kubernetes all accept this text as the name of an image."""
    return len(text) <= LONGEST and _NAME.fullmatch(text) is not None


def canonical(name: str) -> str:
    """One name for all ways of writing an image: with its tag, and without the defaults that Docker adds to short
    names.

    ``docker.io/library/python`` and ``python:latest`` are the same image.
    """
    for default in ("docker.io/", "index.docker.io/", "library/"):
        name = name.removeprefix(default)
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def matches(name: str, patterns: str) -> bool:
    """Whether one of the patterns matches the image's name. Patterns use ``*`` and ``?`` and are separated by commas.

    ``team/own`` matches its tag ``latest`` only. ``team/*`` matches all images of the team with all tags.
    """
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    return any(fnmatchcase(canonical(name), way) for pattern in wanted for way in (pattern, canonical(pattern)))
