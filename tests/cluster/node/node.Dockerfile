# A kind node for machines that cannot pull kind's own: Debian's tools, the pinned Kubernetes programs, no systemd.
ARG TOOLS
FROM ${TOOLS}
COPY programs/ /usr/bin/
COPY images/ /kind/images/
COPY version /kind/version
COPY containerd.toml /etc/containerd/config.toml
COPY crictl.yaml /etc/crictl.yaml
COPY node-entrypoint systemctl /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/node-entrypoint"]
