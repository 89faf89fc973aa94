"""Fleet backends: processes, containers, pods and tasks of ECS, behind one seam."""

from penstock.autoscaler.backends.seam import MEMBER, Condition, FleetBackend, FleetMember, LaunchSpec

__all__ = ["MEMBER", "Condition", "FleetBackend", "FleetMember", "LaunchSpec"]
