# An image of one static program; kubeadm's manifests name the program, the pod sandbox starts the entry point.
FROM scratch
ARG PROGRAM
COPY ${PROGRAM} /usr/local/bin/
ENV PATH=/usr/local/bin
