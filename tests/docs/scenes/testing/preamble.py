"""Where the test of the guide stands."""

import shop
from jobs import app

__all__ = ["app", "shop"]
