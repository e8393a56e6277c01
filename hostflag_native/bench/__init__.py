"""How fast the hand-off is on two CPUs of this machine, beside other ways to wake a thread or a process.

What belongs here: the mechanisms under comparison, the slices they run in, and how the figures are told. What does not:
anything an engine calls while it serves, and any check (the self-test's business). May import: hostflag_native, numpy
and the standard library.
"""
