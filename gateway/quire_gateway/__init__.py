"""quire's gateway: many engines behind one URL. Its parts arrive with the gateway issue."""
