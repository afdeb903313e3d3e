"""quire's gateway: many engines behind one URL."""
