"""What every job store must do. Subclass `StoreContract`, give it a `store` fixture, and run it with pytest."""

from penstock.testing.store_contract.admitting import Admitting
from penstock.testing.store_contract.claiming import Claiming
from penstock.testing.store_contract.dispatching import Dispatching
from penstock.testing.store_contract.ending import Ending
from penstock.testing.store_contract.leasing import Leasing
from penstock.testing.store_contract.reading import Reading
from penstock.testing.store_contract.registering import Registering
from penstock.testing.store_contract.restoring import Restoring
from penstock.testing.store_contract.scheduling import Scheduling
from penstock.testing.store_contract.settling import Settling
from penstock.testing.store_contract.submitting import Submitting
from penstock.testing.store_contract.ticking import Ticking

__all__ = ["StoreContract"]


class StoreContract(
    Submitting,
    Dispatching,
    Leasing,
    Claiming,
    Settling,
    Ending,
    Reading,
    Registering,
    Scheduling,
    Ticking,
    Admitting,
    Restoring,
):
    """The promises of `penstock.store.seam`, each as a test."""
