#!/bin/sh
# What a CI job runs, with any service, where deepinfer-core and deepinfer-conformance are installed: sh ci.sh
# The card goes to build/. The level "full" belongs in a nightly job.
set -eu
cd "$(dirname "$0")"
python -m pip install --no-deps .
python -m pytest tests
deepinfer doctor --backend mychip
mkdir -p build
deepinfer conformance mychip --level "${LEVEL:-core}" --waivers tests/conformance.toml --report build/card.md
