"""The administrator's pod template: read, checked, and merged under what OpenEDT needs."""

from __future__ import annotations

import copy
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from edt_provisioner.errors import BadSetting

CONTAINER = "edt"
"""Name of the container that the agent goes into. If a template has none of this name, it is the first one."""
_VARIABLE = "EDT_KUBERNETES_POD_TEMPLATE"


def read_template(path: Path, home: Path) -> dict[str, Any]:
    """Read a pod template, given as a Pod, a PodTemplate or a PodTemplateSpec.

    Args:
        path: the YAML file.
        home: the platform's folder, which must be on a volume.

    Returns:
        A PodTemplateSpec with ``metadata`` and ``spec``.

    Raises:
        BadSetting: the file cannot be read, or is no such thing. The message names the file and the field.
    """
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
    except OSError as error:
        raise BadSetting(f"{_VARIABLE}: {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting(f"{_VARIABLE}: {path} is not YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadSetting(f"{_VARIABLE}: {path} has {len(documents)} documents; it takes one, with a pod")
    given = documents[0]
    kind = given.get("kind", "PodTemplateSpec")
    if kind not in {"Pod", "PodTemplate", "PodTemplateSpec"}:
        raise BadSetting(f"{_VARIABLE}: {path}: kind is {kind!r}; it takes Pod, PodTemplate or PodTemplateSpec")
    if kind == "PodTemplate":
        given = _mapping(given, "template", path)
    metadata = _mapping(given, "metadata", path) if given.get("metadata") is not None else {}
    spec = _mapping(given, "spec", path)
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(each, dict) for each in containers):
        raise BadSetting(f"{_VARIABLE}: {path}: spec.containers is {containers!r}; it takes a list of containers")
    if not all(isinstance(each.get("name"), str) for each in containers):
        raise BadSetting(f"{_VARIABLE}: {path}: spec.containers: each takes a name")
    mounts = [each.get("mountPath", "") for each in container_of(spec).get("volumeMounts") or []]
    if not any(PurePosixPath(home).is_relative_to(mount) for mount in mounts if mount):
        raise BadSetting(
            f"{_VARIABLE}: {path}: volumeMounts are at {', '.join(mounts) or 'no path'}; one has to hold EDT_HOME"
            f" ({home}), which all pods and the platform share"
        )
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {"metadata": copy.deepcopy(kept), "spec": copy.deepcopy(spec)}


def container_of(spec: dict[str, Any]) -> dict[str, Any]:
    """The container of a pod's spec that the agent goes into."""
    containers: list[dict[str, Any]] = spec["containers"]
    return next((each for each in containers if each.get("name") == CONTAINER), containers[0])


def merged(template: Any, ours: Any) -> Any:
    """Merge two values. Where both say something, ours counts.

    Mappings are merged by key. Lists whose members have names (containers, volumes, environment variables) are merged
    by name, and lists of volume mounts by path; of other lists ours replaces the template's.
    """
    if isinstance(template, dict) and isinstance(ours, dict):
        return {
            **template,
            **{key: merged(template[key], value) if key in template else value for key, value in ours.items()},
        }
    if isinstance(template, list) and isinstance(ours, list):
        for key in ("mountPath", "name"):
            if all(isinstance(each, dict) and key in each for each in (*template, *ours)):
                return _merged_by(key, template, ours)
    return ours


def _merged_by(key: str, template: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mine = {each[key]: each for each in ours}
    kept = [mine.pop(each[key]) if each[key] in mine else each for each in template]
    return [*kept, *mine.values()]


def _mapping(given: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    value = given.get(name)
    if not isinstance(value, dict):
        raise BadSetting(f"{_VARIABLE}: {path}: {name} is {value!r}; it takes a mapping")
    return value
