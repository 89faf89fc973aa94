"""Handlers for the workers of a fleet under test. A file named after a job's id lets it end."""

import atexit
import os
import random
import signal
import threading
from pathlib import Path

from penstock import Context, Penstock, Retry
from tests.watch import until_there

app = Penstock()
FOLDER = Path(os.environ.get("FLEET_APP_FOLDER", "."))
IMPORTED_BY = os.getpid()

if os.environ.get("FLEET_APP_THREADS"):
    threading.Thread(target=threading.Event().wait, name="from-import", daemon=True).start()
if os.environ.get("FLEET_APP_MEDDLES"):
    atexit.register((FOLDER / "exited").touch)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.environ["PENSTOCK_WORKER_URL"] = "http://127.0.0.1:1"
    os.environ["SET_AT_IMPORT"] = "yes"


@app.job(retry=Retry.none())
async def hold(ctx: Context) -> None:
    await until_there(FOLDER / ctx.id)


@app.job
async def who() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "imported_by": IMPORTED_BY,
        "chance": random.random(),
        "member": os.environ.get("PENSTOCK_MEMBER"),
        "at_import": os.environ.get("SET_AT_IMPORT"),
    }


@app.job
def surroundings() -> list[str]:
    """Everything in its environment, now and when its process began."""
    began = Path("/proc/self/environ").read_bytes().decode().split("\0")
    return [f"{name}={value}" for name, value in os.environ.items()] + began


@app.job(isolated=True)
def who_alone() -> dict[str, int]:
    return {"pid": os.getpid(), "parent": os.getppid(), "imported_by": IMPORTED_BY}


@app.job(retry=Retry.none())
async def crash() -> None:
    os._exit(7)
