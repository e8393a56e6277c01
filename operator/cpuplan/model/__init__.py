"""Values without I/O: CPU lists, topology, plans, requests and errors.

What belongs here: immutable values, their text and JSON forms, and the errors a caller may handle.
What does not: reading files, deciding anything, Kubernetes. May import: the standard library.
"""
