#!/usr/bin/env bash
# Writes what is made of the types in mesh/kube/v1alpha1 into the tree at ROOT: their deep copies,
# and the custom resource definitions in deploy/crds.
# usage: generate.sh ROOT
set -euo pipefail
root=$(realpath "$1")
cd "$(dirname "$0")/.."

types=mesh/kube/v1alpha1
mkdir -p "$root/$types" "$root/deploy/crds"
"${TOOLS:-bin/tools}/controller-gen" object crd paths="./$types" \
	output:object:dir="$root/$types" output:crd:dir="$root/deploy/crds"
