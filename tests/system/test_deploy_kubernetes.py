"""What `deploy/kubernetes` and `deploy/keda` ship can be read and names what exists. Nothing here runs on a cluster."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

if "CI" not in os.environ:
    pytest.importorskip("lightkube")

from lightkube.codecs import from_dict

from penstock.api.metrics import FAMILIES
from penstock.autoscaler.backends import MEMBER
from penstock.backends import check_shared
from penstock.backends.worker_environ import pod_environ
from penstock.config import load
from penstock.config.load import ALIASES, FIELDS
from penstock.model.lifecycle import State
from tests.system.command_line import parse
from tests.system.harness import ROOT

Json = dict[str, Any]
DEPLOY = ROOT / "deploy"
FILES = sorted([*(DEPLOY / "kubernetes").glob("*.yaml"), *(DEPLOY / "keda").glob("*.yaml")])
OWN_KINDS = {"ScaledObject"}
"""What Kubernetes itself does not know."""

SETTINGS = {f"PENSTOCK_{name.replace('.', '_').upper()}" for name in FIELDS} | set(ALIASES) | {MEMBER}
"""Commands that are being written; take this away when they are there."""

SHARDS = {"PENSTOCK_STORE_SHARDS": "0=postgresql://shard0/penstock"}


def documents(file: Path) -> list[Json]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one is not None]


def every(kind: str) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for file in FILES for one in documents(file) if one["kind"] == kind}


def containers() -> list[Json]:
    return [one for role in every("Deployment").values() for one in role["spec"]["template"]["spec"]["containers"]]


def pods() -> list[Json]:
    return [role["spec"]["template"]["spec"] for role in every("Deployment").values()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_document_is_one_that_kubernetes_knows_and_has_no_field_that_it_does_not(file: Path) -> None:
    found = documents(file)
    assert found
    for document in found:
        assert document["metadata"].get("namespace", document["metadata"]["name"]) == "penstock"
        if document["kind"] not in OWN_KINDS:
            assert from_dict(document).to_dict() == document


def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    (document,) = documents(DEPLOY / "kubernetes/namespace.yaml")
    document["metadata"]["lables"] = {"a": "b"}
    assert from_dict(document).to_dict() != document


def test_every_role_is_there() -> None:
    assert set(every("Deployment")) == {
        "penstock-api", "penstock-scheduler", "penstock-autoscaler", "penstock-worker"
    }  # fmt: skip


def test_every_container_runs_the_image_of_ours_with_a_command_that_exists() -> None:
    for container in containers():
        assert container["image"] == "penstock"
        assert "command" not in container, "it would replace the ENTRYPOINT of the image, which is penstock"
        parse(container["args"])


def test_every_setting_that_is_given_exists_and_loads() -> None:
    (settings,) = every("ConfigMap").values()
    own = {one["name"] for container in containers() for one in container.get("env", [])}
    assert {*settings["data"], *own} <= SETTINGS
    loaded = load(None, {**settings["data"], **SHARDS}, {})
    check_shared(loaded, "api")
    assert loaded.server.needs_keys


def test_the_settings_and_secrets_that_are_named_are_there_or_told_of() -> None:
    told = (DEPLOY / "kubernetes/settings.yaml").read_text()
    for container in containers():
        sources = [one for source in container["envFrom"] for one in source.items()]
        assert sources == [
            ("configMapRef", {"name": "penstock-settings"}),
            ("secretRef", {"name": "penstock-secrets"}),
        ]
    assert "penstock-settings" in every("ConfigMap")
    assert "create secret generic penstock-secrets" in told
    assert set(re.findall(r"PENSTOCK_\w+", told)) <= SETTINGS


def test_workers_reach_the_api_by_its_service() -> None:
    (settings,) = every("ConfigMap").values()
    (service,) = every("Service").values()
    assert settings["data"]["PENSTOCK_WORKER_URL"] == f"http://{service['metadata']['name']}"
    labels = every("Deployment")["penstock-api"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (port,) = service["spec"]["ports"]
    (container,) = every("Deployment")["penstock-api"]["spec"]["template"]["spec"]["containers"]
    assert {"name": port["targetPort"], "containerPort": load(None, {}, {}).server.port} in container["ports"]


def test_pods_of_fleets_are_given_the_image_the_address_and_the_key_by_which_they_reach_the_api() -> None:
    (settings,) = every("ConfigMap").values()
    secrets = {**SHARDS, "PENSTOCK_KEY": "the-workers-key"}
    ours = load(None, {**settings["data"], **secrets}, {})
    assert ours.fleet.image
    assert ours.fleet.secrets == ("penstock-secrets",)
    theirs = load(None, {**secrets, **pod_environ(ours)}, {})
    assert (theirs.worker.url, theirs.worker.key) == (settings["data"]["PENSTOCK_WORKER_URL"], "the-workers-key")
    assert not theirs.worker.direct


def test_the_command_of_the_guide_that_makes_the_first_key_is_one() -> None:
    guide = (ROOT / "docs/guides/kubernetes.md").read_text()
    (args,) = re.findall(r'"args": (\[.+?\])', guide)
    parse(json.loads(args))


def test_the_autoscaler_alone_may_talk_to_kubernetes() -> None:
    (binding,) = every("RoleBinding").values()
    assert binding["roleRef"]["name"] in every("Role")
    accounts = {one["name"] for one in binding["subjects"]}
    assert accounts == set(every("ServiceAccount"))
    for name, role in every("Deployment").items():
        pod = role["spec"]["template"]["spec"]
        if name == "penstock-autoscaler":
            assert {pod["serviceAccountName"]} == accounts
        else:
            assert pod["automountServiceAccountToken"] is False


def test_pods_are_hardened() -> None:
    assert all(pod["securityContext"]["runAsNonRoot"] for pod in pods())
    assert not any(pod["enableServiceLinks"] for pod in pods())
    for container in containers():
        own = container["securityContext"]
        assert not own["allowPrivilegeEscalation"]
        assert own["readOnlyRootFilesystem"]
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_a_worker_has_longer_to_end_than_it_drains() -> None:
    pod = every("Deployment")["penstock-worker"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    texts = {one["name"]: one.get("value") for one in container["env"]}
    drain = load(None, {"PENSTOCK_WORKER_DRAIN_SECONDS": texts["PENSTOCK_WORKER_DRAIN_SECONDS"]}, {})
    assert pod["terminationGracePeriodSeconds"] >= drain.worker.drain_seconds + 60
    named = [one for one in container["env"] if one["name"] == MEMBER]
    assert named == [{"name": MEMBER, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def test_keda_scales_the_worker_by_a_metric_that_we_give() -> None:
    (scaled,) = every("ScaledObject").values()
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    target = scaled["spec"]["scaleTargetRef"]["name"]
    assert "replicas" not in every("Deployment")[target]["spec"], "applying it again would undo what KEDA did"
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    (metric,) = re.findall(r"penstock_\w+", query)
    assert metric in {family.name for family in FAMILIES}
    assert "max by (shard, type, state)" in query, "every API tells the same counts, and each shard has its own"
    (states,) = re.findall(r'state=~"([^"]+)"', query)
    assert set(states.split("|")) == {State.QUEUED, State.RUNNING}
    assert trigger["metadata"]["ignoreNullValues"] == "false"
