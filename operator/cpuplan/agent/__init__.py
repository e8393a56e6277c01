"""The agent: its node's pods, devices, cgroups and sysfs in, plans on its own node's pods out.

Here belongs: what the kubelet and claims say (`podresources`, `podresources_messages`, `claims`, `slices`), what the
host says (`nodefacts`), from a pod to what is to be planned (`planned`, `assigned`, `workers`, `masks`, `containers`),
when and with which masks (`schedule`, `settling`), the loop that decides and writes (`loop`, `writing`, `verdict`), why
it decided so (`explaining`, `grounds`), the audit of pods that ask for nothing (`auditing`), and the process itself
(`command`, `settings`, `metrics`, `process`).
Not here: decisions about CPUs (`planning`), reading files (`host`), HTTP (`kube`), anything of the operator.
May import `model`, `planning`, `host`, `kube` and `process`; outside cpuplan grpc, protobuf and prometheus_client.
"""
