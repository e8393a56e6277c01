"""Does the hand-off work here: on this host, with this library, with these devices.

What belongs here: the checks, their verdict, and the program that runs them within a time limit. What does not:
anything an engine calls while it serves. May import: hostflag_native and the standard library.
"""

from hostflag_native.selftest.process import run
from hostflag_native.selftest.verdict import Outcome, Verdict

__all__ = ["Outcome", "Verdict", "run"]
