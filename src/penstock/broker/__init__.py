"""The Broker seam: volatile tickets. Losing a broker loses no job."""

from penstock.broker.seam import Broker, BrokerCapabilities, SignalMessage

__all__ = ["Broker", "BrokerCapabilities", "SignalMessage"]
