#!/usr/bin/env bash
# Prints the folder of each Go module of the repository, the product's first.
set -euo pipefail
cd "$(dirname "$0")/.."
find . -name go.mod -not -path './.git/*' -not -path '*/testdata/*' -printf '%h\n' | sort
