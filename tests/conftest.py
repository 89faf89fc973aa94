"""What holds for all tests."""

import os
import signal

from hypothesis import settings

# However the tests were started (`nohup`, a shell's `&`): whatever they start is to heed the signals it is sent.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure; and what CI finds must be what everyone finds.
settings.register_profile("penstock", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("penstock")
