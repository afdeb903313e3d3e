"""`python -m quire_engine.workers`: one API worker, started by the pool and not by hand."""

import sys

from quire_engine.workers.worker import main

if __name__ == "__main__":
    sys.exit(main())
