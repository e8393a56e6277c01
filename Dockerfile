# The one image of every cpuplan process: agent, operator and the injected init container.
#
# BASE is any image with Python 3.11 or later as python3, and its venv module. The wheels are gathered for that
# Python outside (`make image`), so that nothing here needs a network. Dependencies have a layer of their own: a
# change of ours neither installs nor ships them again.
ARG BASE=python:3-slim

FROM ${BASE} AS dependencies
COPY build/wheels/dependencies /wheels
RUN python3 -m venv /opt/cpuplan \
 && /opt/cpuplan/bin/python -m pip install --no-index --no-cache-dir --disable-pip-version-check /wheels/*.whl

FROM dependencies AS slim
RUN /opt/cpuplan/bin/python -m pip uninstall --yes --quiet setuptools pip

FROM dependencies AS own
COPY build/wheels/own /wheels-own
RUN /opt/cpuplan/bin/python -m pip install --no-index --no-deps --no-cache-dir --disable-pip-version-check \
      --prefix=/own /wheels-own/*.whl

FROM ${BASE}
COPY --from=slim /opt/cpuplan /opt/cpuplan
COPY --from=own /own /opt/cpuplan
# For the images of engines, which copy it from here: one wheel, for every Python.
COPY build/wheels/own /opt/cpuplan/wheels
ENV PATH=/opt/cpuplan/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, so that kubelets can tell it is not root (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["cpuplan"]
