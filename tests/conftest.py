"""What holds for all tests."""

import os

from hypothesis import settings

# A busy machine is no failure; and what CI finds must be what everyone finds.
settings.register_profile("penstock", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("penstock")
