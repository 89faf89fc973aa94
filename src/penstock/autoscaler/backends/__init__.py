"""Where workers run: one backend for each kind of place, all behind one seam."""

from penstock.autoscaler.backends.seam import MEMBER, Condition, FleetBackend, FleetMember, LaunchSpec

__all__ = ["MEMBER", "Condition", "FleetBackend", "FleetMember", "LaunchSpec"]
