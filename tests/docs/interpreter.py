"""`python interpreter.py`: runs the Python blocks of a page, one after the other, in one namespace.

A line of JSON each way: the source and its name; what it printed, and the traceback if it raised. A function that a
block defines under a name that begins with `test_` is called too.
"""

import io
import json
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def run(source: str, name: str, namespace: dict[str, Any]) -> dict[str, str]:
    before, error = dict(namespace), ""
    with redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(source, name, "exec"), namespace)  # noqa: S102 - it is the page's
            for new in [one for one in namespace if one.startswith("test_") and one not in before]:
                namespace[new]()
        except BaseException:  # noqa: BLE001 - told, whatever it is
            error = traceback.format_exc()
    return {"printed": printed.getvalue(), "error": error}


def main() -> None:
    sys.path[0] = str(Path.cwd())
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        told = json.loads(line)
        sys.stdout.write(json.dumps(run(told["source"], told["name"], namespace)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
