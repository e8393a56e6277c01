"""The only code that opens /sys, /proc and cgroupfs: topology, quotas, affinity, devices and GPU locks.

What belongs here: readers that turn files into values of model, each with a twin that takes paths.
What does not: choosing anything. May import: model and the standard library.
"""
