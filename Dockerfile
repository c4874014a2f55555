# The sidecar, with the libraries of every broker. `make image` builds it; docs/kubernetes.md puts it into a pod.
#
# Any image with Python 3.11 or newer on glibc can be its base: --build-arg PYTHON_IMAGE=...
# What few need is left out unless asked for: --build-arg EXTRAS=tracing,push,uvloop adds OpenTelemetry, what calls apps
# over HTTP, and a faster event loop.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# pip takes these from its environment: another index, or a folder of wheels in the context and no index at all.
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ARG EXTRAS=""
WORKDIR /src
COPY . .
# The environment has no pip of its own: that stays in this stage.
RUN python3 -m venv /tmp/pip \
 && python3 -m venv --without-pip /opt/offramp \
 && /tmp/pip/bin/pip --python /opt/offramp/bin/python install --no-cache-dir ./clients/python ".${EXTRAS:+[${EXTRAS}]}"

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/offramp /opt/offramp
ENV PATH=/opt/offramp/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1
# The folders belong to group 0, which an arbitrary user of a container is in. Nothing is installed from here on, so pip
# goes. A read-only root keeps no bytecode, so what the sidecar loads of Python itself is compiled now.
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* \
      /usr/lib/python3*/ensurepip /usr/share/python-wheels \
 && mkdir -p /etc/offramp /run/offramp /var/lib/offramp \
 && chown 65532:0 /run/offramp /var/lib/offramp \
 && chmod 0770 /run/offramp /var/lib/offramp \
 && python3 -c 'import sidecar.cli.commands.run, sidecar.cli.commands.health, sidecar.brokers.kafka, sidecar.brokers.local, sidecar.brokers.pulsar'
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Offramp" \
      org.opencontainers.image.description="A sidecar that gets messages from a broker into business code, over gRPC, in any language." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
WORKDIR /
EXPOSE 4771
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["offramp", "health"]
ENTRYPOINT ["offramp"]
CMD ["run"]
