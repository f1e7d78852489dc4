#!/usr/bin/env bash
# Makes a Debian machine ready for the tests: installs what is missing when root, else says
# what is missing and how to get it. Does nothing on a machine that has all.
set -euo pipefail

# command  Debian package
needs='
wg       wireguard-tools
nft      nftables
ip       iproute2
curl     curl
strace   strace
gcc      gcc
containerd containerd
runc     runc
'

missing=()
while read -r command package; do
	[[ -z $command ]] || command -v "$command" >/dev/null || missing+=("$package")
done < <(PATH=$PATH:/usr/sbin:/sbin; printf '%s' "$needs")

# The race detector links against the C library, and modules are fetched over TLS.
[[ -e /usr/include/stdlib.h ]] || missing+=(libc6-dev)
[[ -e /etc/ssl/certs/ca-certificates.crt ]] || missing+=(ca-certificates)
# Nodes give their pods networks with these.
[[ -x /usr/lib/cni/bridge ]] || missing+=(containernetworking-plugins)
# wg(8) knows ports by name.
[[ -e /etc/services ]] || missing+=(netbase)

((${#missing[@]})) || exit 0

install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
	echo "the tests need these Debian packages or their like: ${missing[*]}" >&2
	echo "install them with: sudo ${install[*]}" >&2
	exit 1
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
"${install[@]}"
