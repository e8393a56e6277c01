"""The agent: its node's pods, devices, cgroups and sysfs in, plans on its own node's pods out.

Here belongs: the kubelet's PodResources (`podresources`, `podresources_messages`), from a pod to what is to be
planned (`containers`, `workers`, `claims`), the loop that decides and writes (`loop`, `writing`), its settings
and metrics. Not here: decisions about CPUs (`planning`), reading files (`host`), HTTP (`kube`), anything of the
operator. May import `model`, `planning`, `host`, `kube` and `process`; outside cpuplan grpc, protobuf and
prometheus_client.
"""
