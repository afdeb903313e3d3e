"""quire's operator: from an InferenceService to running engines.

Empty for now: its parts arrive with the operator.
"""
