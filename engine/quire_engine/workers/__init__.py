"""Several API processes before one core: see `quire_engine.workers.pool`."""
