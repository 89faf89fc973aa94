"""Workers as pods: one Deployment for each fleet, in one namespace of a Kubernetes cluster."""

from penstock.autoscaler.fleets.kubernetes.fleets import KubernetesFleets
from penstock.autoscaler.fleets.kubernetes.workload import PodDefaults

__all__ = ["KubernetesFleets", "PodDefaults"]
