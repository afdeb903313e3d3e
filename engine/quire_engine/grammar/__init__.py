"""Answers of a given form: grammars from schemas, their compilation, and what they permit next."""
