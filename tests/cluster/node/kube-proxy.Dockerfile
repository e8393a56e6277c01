# kube-proxy with the iptables programs it calls and the libraries these load, and nothing else.
ARG TOOLS
FROM ${TOOLS} AS tools
RUN set -eu; mkdir -p /tree/usr/sbin; cp /usr/sbin/xtables-nft-multi /tree/usr/sbin/; \
    for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do \
      ln -s xtables-nft-multi /tree/usr/sbin/$name; \
    done; \
    cp --archive --parents /usr/lib/*/xtables /tree/; \
    ldd /usr/sbin/xtables-nft-multi /usr/lib/*/xtables/*.so | grep -o '/[^ ]*\.so[^ :]* (' | tr -d '( ' | sort -u \
      | xargs -I LIBRARY cp --dereference --parents LIBRARY /tree/
FROM scratch
COPY --from=tools /tree /
COPY kube-proxy /usr/local/bin/
ENV PATH=/usr/local/bin:/usr/sbin
