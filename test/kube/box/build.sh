#!/usr/bin/env bash
# Puts the binary of etcd and Kubernetes' components at OUT: build.sh OUT
#
# A cold build takes two cores 10 to 20 minutes, so what was built is kept in the user's
# cache folder, under a name that changes with everything that goes into it.
set -euo pipefail
shopt -s inherit_errexit

out=$(realpath -ms "${1:?usage: build.sh OUT}")
cd "$(dirname "$0")"
go=${GO:-go}

# A test of another module may call this: its flags are not meant for this build.
unset GOFLAGS GOWORK
export CGO_ENABLED=0

# A comment in this script is worth no build, its flags are; so the recipe has a number.
sources() {
	echo recipe 1
	"$go" env GOVERSION GOOS GOARCH
	cat -- go.mod go.sum ./*.go
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/stillwire
kept=$cache/box-$(sources | sha256sum | cut -c1-16)

# version prints the linker flags that make the components say which release they are. An
# API server without them tells clients that it is v0.0.0.
version() {
	local release package
	release=$("$go" list -m -f '{{.Version}}' k8s.io/kubernetes)
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s=%s ' \
			"$package.gitVersion" "$release" \
			"$package.gitMajor" "$(cut -d. -f1 <<<"${release#v}")" \
			"$package.gitMinor" "$(cut -d. -f2 <<<"$release")" \
			"$package.gitCommit" module \
			"$package.gitTreeState" clean \
			"$package.buildDate" 1970-01-01T00:00:00Z
	done
}

build() {
	local flags
	echo "box: building $kept, which takes 10 to 20 minutes the first time"
	flags="-s -w $(version)"
	# The name of what is being built differs, so that a build cut short leaves no binary.
	nice "$go" build -trimpath -buildvcs=false -ldflags "$flags" -o "$kept.part" .
	mv "$kept.part" "$kept"
	# Each has 150 MB, so those that nobody took for a month go.
	find "$cache" -name 'box-*' -mtime +30 -delete
}

mkdir -p "$cache" "$(dirname "$out")"
# The second of two builds at once waits here, and then finds what the first has built.
exec 9>"$kept.lock"
flock 9
if [[ -x $kept ]]; then
	echo "box: $out is $kept, built before"
	touch "$kept"
else
	build
fi
ln -sfn "$kept" "$out"
