"""What every job store must do. Subclass `StoreContract`, give it a `store` fixture, and run it with pytest."""

from penstock.testing.store_contract.admission import AdmissionContract
from penstock.testing.store_contract.claims import ClaimContract
from penstock.testing.store_contract.dispatch import DispatchContract
from penstock.testing.store_contract.ends import EndContract
from penstock.testing.store_contract.history import HistoryContract
from penstock.testing.store_contract.journal import JournalContract, SilentStoreContract
from penstock.testing.store_contract.leases import LeaseContract
from penstock.testing.store_contract.reads import ReadContract
from penstock.testing.store_contract.registry import RegistryContract
from penstock.testing.store_contract.relays import RelayContract
from penstock.testing.store_contract.restores import RestoreContract
from penstock.testing.store_contract.schedules import ScheduleContract
from penstock.testing.store_contract.settles import SettleContract
from penstock.testing.store_contract.submits import SubmitContract
from penstock.testing.store_contract.ticks import TickContract

__all__ = ["SilentStoreContract", "StoreContract"]


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
    RestoreContract,
    JournalContract,
    HistoryContract,
    RelayContract,
):
    """The promises of `penstock.store.seam`, each as a test."""
