"""Workers as pods: one Deployment for each fleet, in one namespace of a Kubernetes cluster."""

from penstock.autoscaler.backends.kubernetes.backend import KubernetesFleets
from penstock.autoscaler.backends.kubernetes.workload import PodDefaults

__all__ = ["KubernetesFleets", "PodDefaults"]
