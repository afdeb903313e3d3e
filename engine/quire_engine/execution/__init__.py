"""Executors: what turns a scheduled batch into sampled tokens (torch, simulated)."""
