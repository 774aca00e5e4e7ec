"""Records which kinds a current release of Kubernetes has, and their fields, in ``kubernetes-schema.json``.

The official Python client is made from the OpenAPI document of its release; what is recorded is read from its models.

python tests/clusters/record_schema.py
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes
from kubernetes import client

FILE = Path(__file__).with_name("kubernetes-schema.json")
_CREATE = re.compile(r"def create_\w+_with_http_info\(self.*?(?=\n    def |\Z)", re.DOTALL)
_PATH = re.compile(r"'/apis?/((?:[a-z0-9.]+/)?v\d+)/")
"""Of stable versions alone."""
_WHAT = re.compile(r"^ +create an? (\w+)  # noqa", re.MULTILINE)
_BODY = re.compile(r":type body: (V\w+)")


def main() -> None:
    kinds = {
        f"{path[1]} {what[1]}": body[1]
        for name, api in inspect.getmembers(client, inspect.isclass)
        if re.fullmatch(r"[A-Z]\w*V\d+Api", name)
        for method in _CREATE.findall(inspect.getsource(api))
        if (path := _PATH.search(method)) and (what := _WHAT.search(method)) and (body := _BODY.search(method))
    }
    # Beside what is created by itself: the template of a pod, which administrators write.
    models: dict[str, Any] = {}
    waiting = sorted({*kinds.values(), "V1PodTemplateSpec"})
    while waiting:
        name = waiting.pop()
        if name not in models:
            models[name] = _model(name)
            waiting += sorted(set(re.findall(r"\w+", " ".join(models[name]["fields"].values()))) & _known())
    recorded = {
        "release": f"1.{kubernetes.__version__.split('.')[0]}",
        "source": f"the models of the Python client kubernetes {kubernetes.__version__} (Apache License 2.0), "
        "which are made from the OpenAPI document of that release",
        "kinds": dict(sorted(kinds.items())),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in recorded.items()]
    each = (f"{json.dumps(name)}: {json.dumps(model)}" for name, model in sorted(models.items()))
    lines.append('"models": {\n' + ",\n".join(each) + "\n}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{FILE}: {len(kinds)} kinds, {len(models)} models\n")


def _known() -> set[str]:
    return {name for name, each in vars(client).items() if hasattr(each, "openapi_types")}


def _model(name: str) -> dict[str, Any]:
    model = getattr(client, name)
    unchecked = client.Configuration()
    unchecked.client_side_validation = False
    empty = model(local_vars_configuration=unchecked)
    empty.local_vars_configuration = client.Configuration()
    required = []
    for attribute, field in model.attribute_map.items():
        try:
            setattr(empty, attribute, None)
        except ValueError:
            required.append(field)
    fields = {model.attribute_map[attribute]: kind for attribute, kind in model.openapi_types.items()}
    return {"fields": dict(sorted(fields.items())), "required": sorted(required)}


if __name__ == "__main__":
    main()
