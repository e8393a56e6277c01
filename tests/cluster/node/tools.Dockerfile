# What a node needs of Debian, on the Python base image.
ARG BASE
FROM ${BASE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      conntrack containerd containernetworking-plugins ethtool iproute2 iptables kmod mount procps runc socat \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /usr/share/doc /usr/share/man
