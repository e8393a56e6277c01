"""A real Kubernetes cluster for tests and the demo: kind, on any Docker engine or on one of our own.

What belongs here: building the pinned programs, finding or starting a Docker engine, node and base images, the
kind cluster, our product image, the fake GPU device plugin, and undoing all of it. What does not: anything that
knows what a plan is.

May import: the standard library and tests.processes. The Makefile runs it before any environment exists
(`python3 -m tests.cluster up`); only the pytest fixture and the device plugin need more.

Everything that takes long is kept in the cache folder, by the content of what it was made from. Everything else
lies in the state folder and under /run, and `down` removes it.
"""
