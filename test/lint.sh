#!/usr/bin/env bash
# Checks format, go vet and staticcheck in every module, and that the product's go.mod
# lists what is used and no more. What concerns the design is checked by test/arch.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
staticcheck=$PWD/${TOOLS:-bin/tools}/staticcheck
failed=0

check() {
	echo "lint: $*"
	"$@" || failed=1
}
formatted() {
	local unformatted
	unformatted=$(gofmt -l -s .)
	[[ -z $unformatted ]] || { printf 'not formatted, run make fmt:\n%s\n' "$unformatted"; return 1; }
}

check formatted
while read -r module; do
	pushd "$module" >/dev/null
	echo "lint: in $module"
	check "$go" vet ./...
	check "$staticcheck" ./...
	check "$go" mod tidy -diff
	popd >/dev/null
done < <(test/modules.sh)
exit "$failed"
