"""Kubernetes manifests for sharing a GPU (data/kubernetes): what they say, and whether validly.

Checked are Kubernetes' own schema, a schema of the settings of NVIDIA's device plugin and MIG
manager that a ConfigMap carries as text, and whether somebody offers what a Deployment asks for.
No cluster is asked: a valid manifest may still not do what one wants.
"""

import json
from functools import cache
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent.parent / "data" / "kubernetes"


def text(name):
    """A manifest as it is on the disk: 'time-slicing', 'mps' or 'mig'."""
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def read(name):
    """The documents of a manifest, as a list of dicts."""
    return list(yaml.safe_load_all(text(name)))


def problems(documents):
    """What is wrong with a manifest's documents, a line each; an empty list if nothing is found."""
    found = [line for document in documents for line in _invalid(document)]
    if found:
        return found
    offered = offers(documents)
    return [f"Deployment asks for {resource}, and offered is {', '.join(offered) or 'nothing'}"
            for resource in asked(documents) if resource not in offered]


def offers(documents, *, gpus=1):
    """{resource: how many} that a node with so many GPUs offers under these settings.

    Whole GPUs; or, with migStrategy mixed, the instances that the MIG manager makes of each. Then
    each shared resource times its replicas, with .shared behind its name if it is renamed
    (https://github.com/NVIDIA/k8s-device-plugin, README, Shared Access to GPUs).
    """
    plugin = next(iter(_settings(documents, "config")), {})
    found = {"nvidia.com/gpu": gpus}
    if (plugin.get("flags") or {}).get("migStrategy") == "mixed":
        found = {f"nvidia.com/mig-{profile}": number * gpus
                 for manager in _settings(documents, "config.yaml")
                 for layouts in manager["mig-configs"].values() for layout in layouts
                 for profile, number in layout.get("mig-devices", {}).items()}
    for sharing in (plugin.get("sharing") or {}).values():
        for shared in sharing["resources"]:
            if shared["name"] in found:
                suffix = ".shared" if sharing.get("renameByDefault") else ""
                found[shared["name"] + suffix] = found.pop(shared["name"]) * shared["replicas"]
    return found


def asked(documents):
    """{resource: how many} of NVIDIA's resources that all pods of the Deployments ask for."""
    total = {}
    for document in documents:
        if document["kind"] == "Deployment":
            spec = document["spec"]
            for container in spec["template"]["spec"]["containers"]:
                limits = (container.get("resources") or {}).get("limits") or {}
                for resource, number in limits.items():
                    if resource.startswith("nvidia.com/"):
                        total[resource] = total.get(resource, 0) + int(number) * spec["replicas"]
    return total


def _settings(documents, key):
    """What the ConfigMaps hold under a key: 'config' the plugin's, 'config.yaml' the manager's."""
    return [yaml.safe_load(document["data"][key]) for document in documents
            if document["kind"] == "ConfigMap" and key in document["data"]]


def _invalid(document):
    kind = f"{document.get('apiVersion')}/{document.get('kind')}"
    kubernetes = _schema("kubernetes")
    if kind not in kubernetes["kinds"]:
        return [f"{kind}: a kind that this course's part of the schema does not hold"]
    found = _errors(document, kubernetes, kubernetes["kinds"][kind], document["kind"])
    if not found and document["kind"] == "ConfigMap":
        for key, part in (("config", "plugin"), ("config.yaml", "mig-manager")):
            for settings in _settings([document], key):
                found += _errors(settings, _schema("nvidia"), f"#/$defs/{part}", f"{key} of {part}")
    return found


def _errors(value, schema, reference, name):
    checker = Draft202012Validator({"$ref": reference, "$defs": schema["$defs"]})
    return [f"{name}{''.join(f'.{part}' for part in error.path)}: {error.message}"
            for error in checker.iter_errors(value)]


@cache
def _schema(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
