"""The only Kubernetes client of cpuplan: raw JSON over the API, watched pods, plans as annotations.

Here belongs: how to reach the API server (`client`, `connection`, `answers`, `paths`, `backoff`), what went wrong
there (`errors`), pods as values (`pods`), a node's pods kept up to date (`podwatch`), plans written as annotations
and read back (`annotations`), the names of what admission adds to pods (`injected`). Not here: decisions of any kind,
files of the host, kopf. May import `model`; outside cpuplan the packages `kubernetes` and `urllib3`.
"""
