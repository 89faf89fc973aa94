"""`penstock version`"""

import platform

from penstock import __version__
from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.json_output import print_json
from penstock.cli.style import say


@command("version", "penstock version --json")
@options.as_json
def version(*, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        say(f"penstock {__version__} (Python {platform.python_version()})")
