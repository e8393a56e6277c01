"""Pure decisions: one deployment, a node's deployments, how far a topology can be trusted, and why.

What belongs here: functions from values to values. What does not: opening files, reading clocks or the
environment, Kubernetes. May import: model.
"""
