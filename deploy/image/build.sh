#!/usr/bin/env bash
# Builds the container image for one architecture, without a registry and without a network.
# usage: build.sh ARCH OUT.tar   (amd64 or arm64; an OCI archive: podman load, ctr images import)
# Two builds of one commit have one digest.
set -euo pipefail
cd "$(dirname "$0")/../.."

arch=$1
image=docker.io/library/stillwire:latest # what a kubelet makes of stillwire:latest
out=$(realpath -m "$2")
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
CGO_ENABLED=0 GOARCH=$arch "${GO:-go}" build -trimpath -buildvcs=false -ldflags '-s -w' \
	-o "$context/stillwire-$arch" ./cmd/stillwire
cp deploy/image/Containerfile "$context"
mkdir -p "$(dirname "$out")"
# The time of the files would make each build another image.
touch -d @0 "$context/stillwire-$arch"
buildah build --arch "$arch" --timestamp 0 --tag "$image" "$context"
buildah push "$image" "oci-archive:$out:$image"
