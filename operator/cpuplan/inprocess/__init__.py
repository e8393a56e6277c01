"""Inside an engine's process: its plan, the published plan, applying it, and the variables of pools.

What belongs here: what a process does with a plan. What does not: deciding one (planning), Kubernetes.
May import: model, planning, host and the standard library.
"""
