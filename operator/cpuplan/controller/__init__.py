"""The operator process: what the agents wrote on pods, gathered for the cluster, and what is missing, said.

Here belongs: kopf and its handlers (`handlers`, `connections`), pods as the operator sees them (`observed`, `book`),
nodes (`nodes`), the shared ConfigMap (`packing`, `indexstore`), findings and Events (`findings`,
`announcements`, `eventposter`), what follows from all of it (`reconciler`, `operation`), the leader's Lease (`lease`,
`leader`), and the process itself (`command`, `settings`, `access`, `metrics`, `logs`, `failures`, `process`).
Not here: plans (the agents make them), writes to pods (the operator has no right to), admission.
May import `kube`, `process` and `model`; the only package that imports kopf.
"""
