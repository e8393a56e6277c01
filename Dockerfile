# The one image of every cpuplan process: agent, operator and the injected init container.
#
# BASE is any image with Python 3.11 or later as python3, and its venv module. The wheels are gathered for that
# Python outside (`make image`), so that nothing here needs a network.
ARG BASE=python:3-slim

FROM ${BASE} AS installed
COPY build/wheels /wheels
RUN python3 -m venv /opt/cpuplan \
 && /opt/cpuplan/bin/python -m pip install --no-index --find-links=/wheels --no-cache-dir --disable-pip-version-check \
      "cpuplan[agent,operator]" \
 && /opt/cpuplan/bin/python -m pip uninstall --yes --quiet pip setuptools \
 && /opt/cpuplan/bin/python -c "import cpuplan, hostflag_native"

FROM ${BASE}
COPY --from=installed /opt/cpuplan /opt/cpuplan
ENV PATH=/opt/cpuplan/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, so that kubelets can tell it is not root (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["cpuplan"]
