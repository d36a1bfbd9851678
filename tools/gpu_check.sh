#!/bin/sh
# Runs what needs a GPU, within eight minutes, and writes what came out to DIR.
#   usage: tools/gpu_check.sh DIR        from the root of the repository; PYTHON names another interpreter
set -eu
exec "${PYTHON:-python3}" -m tools.gpu_check "${1:?usage: tools/gpu_check.sh DIR}"
