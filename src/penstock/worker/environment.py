"""What user code finds in its environment: nothing of what Penstock itself connects with."""

from collections.abc import Mapping

from penstock.client.home import URL_VARIABLE
from penstock.config import is_setting, variable
from penstock.worker.mortality import PARENT


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """For user code. Settings hold keys, and the addresses of store, broker and objects with their passwords."""
    return {name: value for name, value in environ.items() if not is_setting(name) and name != PARENT}


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The rest: what a worker is told."""
    return {name: value for name, value in environ.items() if is_setting(name)}


def for_import(environ: Mapping[str, str]) -> dict[str, str]:
    """For a process that imports the app before it belongs to a worker: it may ask at import where jobs go to."""
    url = environ.get(variable("worker.url")) or environ.get(URL_VARIABLE)
    return without_settings(environ) | ({URL_VARIABLE: url} if url else {})
