"""Every file of infra/ can be parsed, names no secret, pins its images, and fits the other files."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml

INFRA = Path(__file__).parents[2] / "infra"
COMPOSE = yaml.safe_load((INFRA / "compose.yaml").read_text())
MANIFESTS = sorted((INFRA / "kubernetes").glob("*.yaml"))
DOCUMENTS = [
    (path.stem, document)
    for path in MANIFESTS
    if path.stem != "kustomization"
    for document in yaml.safe_load_all(path.read_text())
]
EXAMPLE = re.findall(r"^(\w+)=(.*)$", (INFRA / "environment.example").read_text(), re.MULTILINE)
MODELS = {
    "Service": "V1Service",
    "StatefulSet": "V1StatefulSet",
    "Deployment": "V1Deployment",
    "NetworkPolicy": "V1NetworkPolicy",
}
SECRET_NAME = re.compile(r"PASSWORD|SECRET|ACCESS_KEY|AUTH")


def unknown_keys(value: Any, kind: str, path: str) -> list[str]:
    """Keys that the Kubernetes API does not have at this path."""
    if kind.startswith("List["):
        return [
            key
            for number, part in enumerate(value)
            for key in unknown_keys(part, kind[5:-1], f"{path}[{number}]")
        ]
    model = getattr(kubernetes.client, kind, None)
    if model is None or not isinstance(value, dict):
        return []
    fields = {name: model.openapi_types[field] for field, name in model.attribute_map.items()}
    wrong = [f"{path}.{key}" for key in value if key not in fields]
    return wrong + [
        key
        for name, part in value.items()
        if name in fields
        for key in unknown_keys(part, fields[name], f"{path}.{name}")
    ]


@pytest.mark.parametrize(
    ("name", "document"), DOCUMENTS, ids=[f"{name}-{document['kind']}" for name, document in DOCUMENTS]
)
def test_a_manifest_has_only_keys_of_the_api(name, document):
    assert unknown_keys(document, MODELS[document["kind"]], name) == []
    assert document["apiVersion"] and document["metadata"]["name"] == name


def test_the_gpu_file_changes_the_worker_alone_and_names_an_argument_of_the_image():
    gpu = yaml.safe_load((INFRA / "compose.gpu.yaml").read_text())["services"]
    assert set(gpu) == {"worker"} <= set(COMPOSE["services"])
    (argument,) = gpu["worker"]["build"]["args"]
    assert f"ARG {argument}=" in (INFRA / "Dockerfile").read_text()
    assert gpu["worker"]["image"] != COMPOSE["services"]["worker"]["image"]


def test_an_unknown_key_is_reported():
    wrong = {"spec": {"template": {"spec": {"containers": [{"name": "x", "imagee": "y"}]}}}}
    assert unknown_keys(wrong, "V1Deployment", "x") == ["x.spec.template.spec.containers[0].imagee"]


def containers() -> list[tuple[str, dict[str, Any]]]:
    named_containers = []
    for name, document in DOCUMENTS:
        spec = document.get("spec", {}).get("template", {}).get("spec", {})
        named_containers += [
            (name, container) for part in ("initContainers", "containers") for container in spec.get(part, [])
        ]
    return named_containers


def test_the_manifests_of_a_service_fit_each_other():
    listed = yaml.safe_load((INFRA / "kubernetes" / "kustomization.yaml").read_text())
    assert sorted(listed["resources"]) == [path.name for path in MANIFESTS if path.stem != "kustomization"]
    for generator in listed["configMapGenerator"]:
        assert all((INFRA / "kubernetes" / file).is_file() for file in generator["files"])
    ports = {
        name: document["spec"]["ports"][0]["port"]
        for name, document in DOCUMENTS
        if document["kind"] == "Service"
    }
    offered = {
        name: [port["containerPort"] for port in container.get("ports", [])]
        for name, container in containers()
    }
    assert all(port in offered[name] for name, port in ports.items())
    named = {
        address: int(port)
        for _, container in containers()
        for entry in container.get("env", [])
        for address, port in re.findall(r"(?:@|//|^)([a-z-]+):(\d+)", entry.get("value", ""))
    }
    assert {name: port for name, port in named.items() if name != "localhost"}.items() <= ports.items()
    for name, document in DOCUMENTS:
        if document["kind"] in ("Deployment", "StatefulSet"):
            spec = document["spec"]
            assert (
                spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
            ), name
            assert all(
                "memory" in container["resources"]["limits"]
                for container in spec["template"]["spec"]["containers"]
            )


def test_images_are_pinned():
    images = [service["image"] for service in COMPOSE["services"].values()] + [
        container["image"] for _, container in containers()
    ]
    assert all(image.startswith("dreamgym") or re.search(r":\d+(\.\d+)*$", image) for image in images), images


def test_no_file_holds_a_secret():
    assert not any(value for _, value in EXAMPLE), "the example names the variables and sets none"
    for service in COMPOSE["services"].values():
        for name, value in service.get("environment", {}).items():
            assert not SECRET_NAME.search(name) or str(value).startswith("${") or "_KEY:?" in str(value), name
    for name, container in containers():
        for entry in container.get("env", []):
            assert not SECRET_NAME.search(entry["name"]) or "valueFrom" in entry, (name, entry["name"])


def test_every_variable_is_listed_and_every_listed_one_used():
    listed = {name for name, _ in EXAMPLE}
    text = (INFRA / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?", text))
    optional = set(re.findall(r"\$\{(\w+):-", text))
    secret_keys = {
        entry["valueFrom"]["secretKeyRef"]["key"]
        for _, c in containers()
        for entry in c.get("env", [])
        if "valueFrom" in entry
    }
    assert required == listed == secret_keys
    assert set(re.findall(r"(?<!\$)\$\{(\w+)", text)) == required | optional
    assert all(
        ref["name"] == "dreamgym"
        for _, c in containers()
        for e in c.get("env", [])
        if (ref := e.get("valueFrom", {}).get("secretKeyRef"))
    )


def test_compose_binds_only_this_machine_and_waits_for_dependencies():
    services = COMPOSE["services"]
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", [])
    )
    for name, service in services.items():
        for dependency, options in service.get("depends_on", {}).items():
            is_one_shot = options["condition"] == "service_completed_successfully"
            assert "healthcheck" in services[dependency] or is_one_shot, (name, dependency)
    mounted = {
        mount.partition(":")[0] for service in services.values() for mount in service.get("volumes", [])
    }
    assert {place for place in mounted if not place.startswith(".")} == set(COMPOSE["volumes"])
    assert all((INFRA / place).exists() for place in mounted if place.startswith("."))


def test_the_programs_of_the_containers_exist():
    commands = [service.get("command", []) for service in COMPOSE["services"].values()] + [
        c.get("command", []) for _, c in containers()
    ]
    scripts = {word for command in commands for word in command if word.endswith(".py")}
    assert scripts == {"infra/make_buckets.py", "infra/mlflow_server.py", "infra/workspace.py"}
    for script in scripts:
        ast.parse((INFRA.parent / script).read_text())
    dockerfile = (INFRA / "Dockerfile").read_text()
    assert (
        "-c constraints.txt" in dockerfile and "USER dreamgym" in dockerfile and "torch==2.13.0" in dockerfile
    )
