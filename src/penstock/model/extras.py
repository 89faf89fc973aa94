"""Extras: the optional libraries of an installation, and the error where one is missing."""

from importlib.util import find_spec

from penstock.model.errors import MissingExtra

DISTRIBUTION = "penstock-jobs"
"""The package's name in registries; it is imported as `penstock`."""

LIBRARIES = {
    "postgres": "psycopg",
    "redis": "redis",
    "s3": "obstore",
    "containers": "aiodocker",
    "kubernetes": "lightkube",
    "aws": "aiobotocore",
}
"""The library of each extra that a setting can ask for."""


def require(*extras: str) -> None:
    """Raise MissingExtra, which names all that are missing and how to install them, unless these are installed."""
    missing = [extra for extra in extras if find_spec(LIBRARIES[extra]) is None]
    if missing:
        *rest, last = [LIBRARIES[extra] for extra in missing]
        said = f"{', '.join(rest)} and {last} are" if rest else f"{last} is"
        raise MissingExtra(f"{said} not installed", remedy=install(*missing))


def install(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
