"""Compares objects with a current release of Kubernetes, whose schema ``clusters/record_schema.py`` has recorded."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "clusters" / "kubernetes-schema.json"
_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "datetime": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "object": (object,),
}


@cache
def recorded() -> dict[str, Any]:
    """``release``, ``kinds`` (``apps/v1 Deployment`` to its model), and ``models`` with ``fields`` and ``required``."""
    return dict(json.loads(FILE.read_text()))


def faults(thing: Any) -> list[str]:
    """What the release would refuse or ignore in an object: an unknown or removed kind, an unknown field, a wrong type,
    a field that is missing. Stable API versions alone are known.
    """
    version, kind = thing.get("apiVersion"), thing.get("kind")
    model = recorded()["kinds"].get(f"{version} {kind}")
    if model is None:
        return [f"{kind} of {version}: release {recorded()['release']} has no such kind"]
    return faults_of(model, thing, str(thing.get("kind")))


def faults_of(kind: str, value: Any, where: str) -> list[str]:
    """The same of a part of an object, by its model (``V1PodTemplateSpec``) or type (``list[V1Container]``)."""
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [fault for i, each in enumerate(value) for fault in faults_of(listed[1], each, f"{where}[{i}]")]
    if mapped := re.fullmatch(r"dict\[str, (.+)\]", kind):
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            return [f"{where}: no mapping of strings"]
        return [fault for key, each in value.items() for fault in faults_of(mapped[1], each, f"{where}.{key}")]
    if kind in _PLAIN:
        fits = isinstance(value, _PLAIN[kind]) and (kind != "int" or not isinstance(value, bool))
        return [] if fits else [f"{where}: {value!r} is no {kind}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no {kind}"]
    model = recorded()["models"][kind]
    found = [f"{where}: {name} is required" for name in model["required"] if value.get(name) is None]
    for name, each in value.items():
        inner = model["fields"].get(name)
        found += [f"{where}: there is no field {name}"] if inner is None else faults_of(inner, each, f"{where}.{name}")
    return found
