"""KV blocks: counted exactly, shared by prefix, evicted in order. Pure and free of torch."""
