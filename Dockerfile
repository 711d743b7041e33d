# Build: docker build -t transom .
# Run:   docker run -p 8000:8000 -v "$PWD/config.yaml:/etc/transom/config.yaml:ro" -v transom:/data transom
FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/transom \
 && /opt/transom/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY .dev .dev
COPY policies policies
COPY storage storage
COPY middleware middleware
COPY proxy proxy
RUN /opt/build/bin/hatchling build -t wheel -d /build/dist \
 && /opt/transom/bin/pip install --no-cache-dir --no-deps /build/dist/*.whl \
 && /opt/transom/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home transom
COPY --from=build /opt/transom /opt/transom
COPY config.yaml /etc/transom/config.yaml
ENV PATH=/opt/transom/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TRANSOM__SERVER__HOST=0.0.0.0 \
    TRANSOM__SERVER__ADMIN_PORT=9090
USER transom
# A relative database path in the configuration lands here.
WORKDIR /data
VOLUME /data
EXPOSE 8000 9090
# Streams get server.drain_s to finish after SIGTERM: give `docker stop` a little longer than that.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/healthz', timeout=2)"]
ENTRYPOINT ["transom"]
CMD ["serve", "--config", "/etc/transom/config.yaml"]
