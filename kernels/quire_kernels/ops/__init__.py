"""Operations: each checks its arguments, allocates what is missing, and launches."""
