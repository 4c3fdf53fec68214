"""The overlays for Ray, for a worker on a GPU and for servers of vLLM fit the manifests that they change."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from infra.test_manifests import DOCUMENTS, INFRA, MODELS, unknown_keys
from vllm_models import NEEDS_VLLM

KUBERNETES = INFRA / "kubernetes"
OVERLAYS = {
    folder.name: {
        path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted(folder.glob("*.yaml"))
    }
    for folder in sorted(KUBERNETES.iterdir())
    if folder.is_dir()
}
WORKER = next(document for name, document in DOCUMENTS if name == "worker")
CLAIM = f"{WORKER['spec']['volumeClaimTemplates'][0]['metadata']['name']}-{WORKER['metadata']['name']}-0"


def containers_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])


def workload_of(overlay: str, name: str) -> dict[str, Any]:
    return next(part for part in OVERLAYS[overlay][name] if containers_of(part))


def test_the_overlays_are_known():
    assert set(OVERLAYS) == {"gpu", "ray", "vllm"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_has_only_keys_of_the_api(overlay):
    for name, documents in OVERLAYS[overlay].items():
        for document in documents:
            if document["kind"] != "Kustomization":
                assert unknown_keys(document, MODELS[document["kind"]], name) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_lists_its_files_and_patches_what_is_there(overlay):
    files = OVERLAYS[overlay]
    (listed,) = files["kustomization"]
    patches = [patch["path"] for patch in listed["patches"]]
    own = [name for name in listed["resources"] if not name.startswith("..")]
    assert sorted([*patches, *own, "kustomization.yaml"]) == sorted(f"{name}.yaml" for name in files)
    for base in set(listed["resources"]) - set(own):
        assert (KUBERNETES / overlay / base / "kustomization.yaml").is_file()
    for patch in patches:
        (changed,) = files[patch.removesuffix(".yaml")]
        assert (changed["kind"], changed["metadata"]["name"]) == (WORKER["kind"], WORKER["metadata"]["name"])
        known = {container["name"] for container in containers_of(WORKER)}
        assert {container["name"] for container in containers_of(changed)} <= known


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_workload_of_an_overlay_has_a_limit_of_memory_and_a_closed_network(overlay):
    for name, documents in OVERLAYS[overlay].items():
        if name.removesuffix(".yaml") in ("ray-workers", "vllm"):
            workload = workload_of(overlay, name)
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert all("memory" in part["resources"]["limits"] for part in containers_of(workload))
            (policy,) = [part for part in documents if part["kind"] == "NetworkPolicy"]
            assert policy["spec"]["podSelector"]["matchLabels"] == labels
            assert all(rule["from"] for rule in policy["spec"]["ingress"])


def test_ray_needs_the_token_and_shares_the_workspace():
    files = OVERLAYS["ray"]
    volumes = files["ray-workers"][0]["spec"]["template"]["spec"]["volumes"]
    assert CLAIM in [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes]
    (port,) = files["ray-head"][0]["spec"]["ports"]
    for documents in files.values():
        for container in [part for document in documents for part in containers_of(document)]:
            variables = {entry["name"]: entry for entry in container["env"]}
            assert variables["RAY_AUTH_MODE"]["value"] == "token"
            assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "RAY_AUTH_TOKEN"
            assert str(port["port"]) in " ".join(container["command"])
    worker = {entry["name"]: entry for entry in containers_of(WORKER)[0]["env"]}
    (container,) = containers_of(workload_of("ray", "ray-workers"))
    shared = [name for name in worker if name.startswith(("PREFECT", "MLFLOW", "AWS"))]
    assert [worker[name] for name in shared] == [part for part in container["env"] if part["name"] in shared]
    assert files["ray-head"][-1]["kind"] == "NetworkPolicy"
    dockerfile = (INFRA / "Dockerfile").read_text()
    assert "-t dreamgym:ray --build-arg RAY=1" in dockerfile and "ARG RAY=" in dockerfile
    assert [image["newTag"] for image in files["kustomization"][0]["images"]] == ["ray"]


@pytest.mark.parametrize("overlay", ["gpu", "vllm"])
def test_a_gpu_is_a_limit_and_the_image_is_the_one_with_vllm(overlay):
    name = {"gpu": "worker-on-gpu", "vllm": "vllm"}[overlay]
    for container in containers_of(workload_of(overlay, name)):
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1", "Kubernetes reads a GPU as a limit"
        assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]
    (listed,) = OVERLAYS[overlay]["kustomization"]
    assert [image["newTag"] for image in listed["images"]] == ["gpu"]
    dockerfile = (INFRA / "Dockerfile").read_text()
    assert "-t dreamgym:gpu --build-arg VLLM=vllm" in dockerfile and "ARG VLLM=" in dockerfile


def test_the_servers_of_vllm_share_the_workspace_and_have_an_address_each():
    service, servers, _ = OVERLAYS["vllm"]["vllm"]
    assert service["spec"]["clusterIP"] == "None", "a row's requests stay with one server"
    assert servers["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = containers_of(servers)
    (port,) = service["spec"]["ports"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert probes == [{"path": "/health", "port": port["port"]}] * 3
    assert container["command"][container["command"].index("--port") + 1] == str(port["port"])
    (volume,) = [
        part for part in servers["spec"]["template"]["spec"]["volumes"] if part["name"] == "workspace"
    ]
    assert volume["persistentVolumeClaim"]["claimName"] == CLAIM
    (changed,) = OVERLAYS["vllm"]["shared-workspace"]
    assert changed["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteMany"]
    addresses = [
        f"http://{servers['metadata']['name']}-{number}.{service['metadata']['name']}:{port['port']}"
        for number in range(servers["spec"]["replicas"])
    ]
    page = (INFRA / "README.md").read_text()
    assert f"vllm.servers=[{', '.join(addresses)}]" in page and "vllm.shared_dir=/workspace" in page


@pytest.mark.engine
@NEEDS_VLLM
def test_vllm_itself_reads_the_servers_arguments():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (container,) = containers_of(workload_of("vllm", "vllm"))
    program, verb, *arguments = container["command"]
    read = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    assert (program, verb, read.model_tag, read.port) == (
        "vllm",
        "serve",
        "/workspace/dreamgym/models/base",
        8000,
    )
    assert (read.enable_lora, read.max_loras, read.logprobs_mode) == (True, 2, "processed_logprobs")
