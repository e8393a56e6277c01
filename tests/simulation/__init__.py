"""Simulated GPU nodes: a machine tree, a fake PodResources socket and a driver that plays the kubelet.

The agent that runs on such a node is the real one. What is simulated is only what a GPU server would be:
its files, its device plugin's allocations, and containers that "run" as cgroup folders.
"""
