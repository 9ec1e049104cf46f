"""The Kubernetes manifests against the schemas that ship, which must be able to refuse one."""

import json

import jsonschema
import pytest

from helpers import machine, manifests, partitions

NAMES = ["time-slicing", "mps", "mig"]


def refs(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [inner] if key == "$ref" else refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


@pytest.mark.parametrize("name", ["kubernetes", "nvidia"])
def test_schema_is_one_and_points_nowhere_else(name):
    schema = json.loads((manifests.FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema({"$defs": schema["$defs"]})
    assert {ref.removeprefix("#/$defs/") for ref in refs(schema)} <= set(schema["$defs"])
    assert "Apache-2.0" in schema["$comment"]


@pytest.mark.parametrize("name", NAMES)
def test_manifest_is_valid_and_asks_for_what_is_offered(name):
    documents = manifests.read(name)
    assert manifests.problems(documents) == []
    asked, offered = manifests.asked(documents), manifests.offers(documents)
    assert asked and all(number <= offered[resource] for resource, number in asked.items())


def test_every_manifest_that_ships_is_tested():
    assert sorted(path.stem for path in manifests.FOLDER.glob("*.yaml")) == sorted(NAMES)


def test_mig_manifest_uses_a_profile_of_the_card_as_often_as_it_has_it():
    documents = manifests.read("mig")
    table = partitions.profiles("H200").set_index("profile")
    for resource, number in manifests.offers(documents).items():
        assert number <= table.instances[resource.removeprefix("nvidia.com/mig-")]
    assert "H200" in machine.hardware().index and "H200" in manifests.text("mig")


def config(name, **sharing):
    """The manifest with the plugin's settings replaced."""
    documents = manifests.read(name)
    [settings] = [d for d in documents if "config" in d.get("data", {})]
    settings["data"]["config"] = json.dumps({"version": "v1", **sharing})
    return documents


def shared(kind, replicas=4, **more):
    return {"sharing": {kind: {"resources": [
        {"name": "nvidia.com/gpu", "replicas": replicas}], **more}}}


@pytest.mark.parametrize("sharing, offered", [
    ({}, {"nvidia.com/gpu": 2}),
    (shared("timeSlicing"), {"nvidia.com/gpu": 8}),
    (shared("mps", renameByDefault=True), {"nvidia.com/gpu.shared": 8}),
])
def test_offers(sharing, offered):
    assert manifests.offers(config("mps", **sharing), gpus=2) == offered


def test_instances_are_offered_for_each_gpu():
    assert manifests.offers(manifests.read("mig"), gpus=3) == {"nvidia.com/mig-3g.71gb": 6}


@pytest.mark.parametrize("sharing, message", [
    (shared("timeslicing"), "timeslicing"), (shared("timeSlicing", replicas=0), "minimum"),
    (shared("mps", renameByDefualt=True), "renameByDefualt"),
    (shared("mps") | {"flags": {"migStrategy": "both"}}, "both"),
    ({"sharing": shared("mps")["sharing"] | shared("timeSlicing")["sharing"]}, "too many"),
    ({"sharing": {"mps": {"resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}]}}},
     "nvidia.com/gpu"),
    (shared("mps"), "asks for nvidia.com/gpu.shared, and offered is nvidia.com/gpu"),
])
def test_wrong_settings_are_refused(sharing, message):
    assert message in "\n".join(manifests.problems(config("mps", **sharing)))


def test_a_misspelt_field_is_refused():
    documents = manifests.read("mps")
    documents[-1]["spec"]["template"]["spec"]["containers"][0]["resources"]["limit"] = {}
    assert "'limit' was unexpected" in "\n".join(manifests.problems(documents))


def test_a_missing_field_is_refused():
    documents = manifests.read("mps")
    del documents[-1]["spec"]["selector"]
    assert "'selector' is a required property" in "\n".join(manifests.problems(documents))


def test_an_instance_of_another_card_is_refused():
    documents = manifests.read("mig")
    limits = documents[-1]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/mig-3g.40gb"] = limits.pop("nvidia.com/mig-3g.71gb")
    assert "asks for nvidia.com/mig-3g.40gb" in "\n".join(manifests.problems(documents))


def test_an_unknown_kind_is_not_waved_through():
    assert "a kind that" in manifests.problems([{"apiVersion": "v1", "kind": "Pod"}])[0]


def test_mig_layout_without_instances_is_refused():
    documents = manifests.read("mig")
    documents[0]["data"]["config.yaml"] = json.dumps(
        {"version": "v1", "mig-configs": {"x": [{"devices": "all", "mig-enabled": True}]}})
    assert "mig-devices" in "\n".join(manifests.problems(documents))
