"""Resource versions of one object in their order.

Source: KEP-5504, by which they are comparable as numbers.
"""


def is_older(version: str, known: str | None) -> bool:
    """Whether a version comes before a known one of the same object; False where that cannot be told."""
    return known is not None and version.isdecimal() and known.isdecimal() and int(version) < int(known)
