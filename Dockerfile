# Two stages: build the wheels, then run them as nobody on a read-only root. State lives under /state.
FROM python:3.11-slim AS build
WORKDIR /src
COPY locks/bootstrap.txt locks/run.txt locks/
RUN pip install --no-cache-dir --require-hashes -r locks/bootstrap.txt \
 && uv venv /opt/headway \
 && uv pip install --no-cache --python /opt/headway/bin/python --require-hashes -r locks/run.txt
COPY . .
RUN uv pip install --no-cache --python /opt/headway/bin/python --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /state headway && mkdir -p /state && chown headway /state
COPY --from=build /opt/headway /opt/headway
USER 10001
ENV PATH=/opt/headway/bin:$PATH HEADWAY_STATE=/state PYTHONUNBUFFERED=1
VOLUME /state
EXPOSE 8765 9090
HEALTHCHECK --interval=15s --timeout=3s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/healthz', timeout=2)"]
ENTRYPOINT ["headway"]
CMD ["serve"]
