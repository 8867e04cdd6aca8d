# CPU: docker build -t stoix_like .        CUDA: docker build --build-arg EXTRA=[cuda12] -t stoix_like:cuda .
# The CUDA libraries come with the extra, so both need nothing but Python (the host brings its NVIDIA driver).
#   docker run --rm -v "$PWD/runs:/work/runs" stoix_like train-ppo --config ppo/maze
#   docker run --rm --gpus all -v "$PWD/runs:/work/runs" stoix_like:cuda train-ppo --config ppo/maze

FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY constraints constraints
COPY configs configs
COPY stoix_like stoix_like
ARG EXTRA=""
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints/py311.txt ".${EXTRA}"

FROM python:3.11-slim
COPY --from=build /opt/venv /opt/venv
ENV PATH="/opt/venv/bin:$PATH" MPLBACKEND=Agg XDG_CACHE_HOME=/work/.cache
WORKDIR /work
ENTRYPOINT ["stoix-like"]
CMD ["--help"]
