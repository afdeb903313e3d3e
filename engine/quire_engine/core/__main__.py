"""Starts the core process; see `quire_engine.core.process`."""

import sys

from quire_engine.core.process import main

sys.exit(main())
