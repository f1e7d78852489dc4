#!/usr/bin/env bash
# Runs every test of every module with the race detector. Fails when one fails, when one
# skips, or when none ran.
set -euo pipefail
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:/sbin
gotestsum=$PWD/${TOOLS:-bin/tools}/gotestsum
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# Tests count every packet, so packages run one after the other, each with the machine to
# itself, once all of them are built: by a run in which true(1) takes the place of each.
export CGO_ENABLED=1
failed=0
number=0
while read -r module; do
	number=$((number + 1))
	echo "== go test in $module"
	(
		cd "$module"
		"${GO:-go}" test -race -exec=true ./... >/dev/null
		"$gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile "$log/$number.json" \
			--packages ./... \
			-- -race -p=1 -shuffle=on -timeout=20m </dev/null
	) || failed=1
done < <(test/modules.sh)

# One line of the log is one event; an event of a test names it.
events() { cat "$log"/*.json | grep "\"Action\":\"$1\"" | grep '"Test":' || true; }
count() { events "$1" | wc -l; }

if (($(count skip))); then
	echo "these tests skipped, and none may: make them run or take them out" >&2
	events skip | sed 's/.*"Package":"\([^"]*\)","Test":"\([^"]*\)".*/  \1 \2/' >&2
	failed=1
fi
if ! (($(count pass))); then
	echo "no test ran" >&2
	failed=1
fi
echo "tests: $(count pass) passed, $(count fail) failed, $(count skip) skipped"
exit "$failed"
