"""In the agent: how an executor process comes to be. Forked from the worker's own template if there is one."""

import logging
import os
import subprocess
import sys

from penstock.worker.child import Child, ForkedChild
from penstock.worker.environment import without_settings
from penstock.worker.template.asking import PreforkLost
from penstock.worker.template.own import own_prefork, without_prefork

logger = logging.getLogger("penstock.worker")


def start_executor(end: int, marks: int, places: int) -> Child:
    """A new executor, given its end of the channel and the page of marks; the caller closes its own copies."""
    template = own_prefork()
    if template is not None:
        try:
            return ForkedChild(template.fork_executor(end, marks, places))
        except PreforkLost as error:
            logger.warning("executors are started without a template from now on: %s", error)
            without_prefork()
    return _spawn(end, marks, places)


def _spawn(end: int, marks: int, places: int) -> Child:
    ends = [str(end), str(marks), str(places), str(os.getpid())]
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.worker.executor", *ends],
        env=without_settings(os.environ),
        pass_fds=(end, marks),
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
        start_new_session=True,
    )
