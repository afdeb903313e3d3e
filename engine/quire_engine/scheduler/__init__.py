"""Which request computes how many tokens in the next step. Pure and free of torch."""
