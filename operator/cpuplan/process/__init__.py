"""What every long-running process of cpuplan has alike: flags, log lines, health and metrics.

Here belongs: flags with an environment variable behind each (`flags`), where a process listens (`address`), its log
(`logs`), what the kubelet and Prometheus ask it over HTTP (`endpoints`), and the names of further pages there
(`pages`). Not here: what a process does, which flags it has, its metrics, Kubernetes. May import the standard library
and prometheus_client, no other room.
"""
