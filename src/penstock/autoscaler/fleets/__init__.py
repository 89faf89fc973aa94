"""Where workers run: one backend for each kind of place, all behind one seam."""

from penstock.autoscaler.fleets.seam import MEMBER, Condition, Fleets, Member, Order

__all__ = ["MEMBER", "Condition", "Fleets", "Member", "Order"]
