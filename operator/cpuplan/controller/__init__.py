"""The operator process: what the agents wrote on pods, gathered for the cluster, and what is missing, said.

Here belongs: kopf and its handlers (`handlers`), pods as the operator sees them (`observed`, `book`), the shared
ConfigMap (`index`, `indexstore`), findings and Events (`findings`, `announcements`, `eventposter`), the
leader's Lease (`lease`, `leader`), and the process itself (`settings`, `process`, `operation`).
Not here: plans (the agents make them), writes to pods (the operator has no right to), admission.
May import `kube` and `model`; the only package that imports kopf.
"""
