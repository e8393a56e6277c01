"""`make demo`: the whole way from `kubectl annotate` to the plan, on a kind cluster of its own.

What belongs here: the story and what it prints. Clusters are made by tests/cluster, nodes that are not there
by tests/simulation.
"""
