#!/usr/bin/env bash
# Prints the folder of each Go module of the repository, the product's first. All but
# test/kube/box: that is Kubernetes and etcd behind a main function of ours, and to build them
# once more for the race detector, go vet and staticcheck would take longer than all tests
# together. Its build and the tests in test/kube check it, and gofmt takes every folder.
set -euo pipefail
cd "$(dirname "$0")/.."
find . -name go.mod -not -path './.git/*' -not -path '*/testdata/*' -not -path './test/kube/box/*' \
	-printf '%h\n' | sort
