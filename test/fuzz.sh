#!/usr/bin/env bash
# Runs every fuzz target of every module for FUZZTIME each. What it finds is written to the
# package's testdata/fuzz and is from then on part of its tests: commit it with the mend.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
time=${FUZZTIME:-20s}
failed=0
while read -r module; do
	while IFS=: read -r file target; do
		echo "== ${file%/*} $target for $time"
		(cd "${file%/*}" && "$go" test -run='^$' -fuzz="^$target\$" -fuzztime="$time" . </dev/null) || failed=1
	done < <(cd "$module" && "$go" list -f '{{.Dir}}' ./... | while read -r dir; do
		grep -HoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/func //' || true
	done)
done < <(test/modules.sh)
exit "$failed"
