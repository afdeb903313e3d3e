"""How long what did not work is left alone: twice as long after each try."""

LONGEST_SECONDS = 4 * 3600.0
"""Six tries a day of some ten minutes each: 4 % of what a replica costs."""
_MOST_DOUBLINGS = 16


def pause(first_seconds: float, num_tries: int) -> float:
    """Seconds without a further try, after so many in a row."""
    doublings = min(max(num_tries - 1, 0), _MOST_DOUBLINGS)
    return min(first_seconds * 2.0**doublings, max(first_seconds, LONGEST_SECONDS))
