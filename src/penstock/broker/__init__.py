"""The Broker seam: volatile tickets. Losing a broker loses no job."""

from penstock.broker.seam import Broker, Rung

__all__ = ["Broker", "Rung"]
