"""What every job store must do. Subclass `StoreContract`, give it a `store` fixture, and run it with pytest."""

from penstock.testing.store_contract.admitting import AdmissionContract
from penstock.testing.store_contract.claiming import ClaimContract
from penstock.testing.store_contract.dispatching import DispatchContract
from penstock.testing.store_contract.ending import EndContract
from penstock.testing.store_contract.leasing import LeaseContract
from penstock.testing.store_contract.reading import ReadContract
from penstock.testing.store_contract.registering import RegistryContract
from penstock.testing.store_contract.restoring import Restoring
from penstock.testing.store_contract.scheduling import ScheduleContract
from penstock.testing.store_contract.settling import SettleContract
from penstock.testing.store_contract.submitting import SubmitContract
from penstock.testing.store_contract.ticking import TickContract

__all__ = ["StoreContract"]


class StoreContract(
    SubmitContract,
    DispatchContract,
    LeaseContract,
    ClaimContract,
    SettleContract,
    EndContract,
    ReadContract,
    RegistryContract,
    ScheduleContract,
    TickContract,
    AdmissionContract,
    Restoring,
):
    """The promises of `penstock.store.seam`, each as a test."""
