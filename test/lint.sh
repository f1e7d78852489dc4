#!/usr/bin/env bash
# Checks format, go vet and staticcheck in every module, and that the product's go.mod
# lists what is used and no more, and what is generated is as make generate makes it. What concerns the design is checked by test/arch.
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

generated() {
	local fresh
	fresh=$(mktemp -d)
	test/generate.sh "$fresh" &&
		diff -r "$fresh/deploy/crds" deploy/crds &&
		diff "$fresh"/mesh/kube/v1alpha1/zz_generated.deepcopy.go mesh/kube/v1alpha1/zz_generated.deepcopy.go ||
		{ echo 'generated files differ from what their types make, run make generate'; rm -rf "$fresh"; return 1; }
	rm -rf "$fresh"
}

check formatted
check generated
while read -r module; do
	pushd "$module" >/dev/null
	echo "lint: in $module"
	check "$go" vet ./...
	check "$staticcheck" ./...
	check "$go" mod tidy -diff
	popd >/dev/null
done < <(test/modules.sh)
exit "$failed"
