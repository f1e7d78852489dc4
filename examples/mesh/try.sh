#!/bin/sh
# Three machines on one cable, as network namespaces of this one, become a mesh by the manifests
# beside this script, and are taken apart again. Needs root, /dev/net/tun, iproute2 and nftables.
#
#   examples/mesh/try.sh bin/stillwire
#
#   berlin-1 203.0.113.10 10.0.0.1 ─┐
#   berlin-2 203.0.113.11 10.0.0.2 ─┼─ bridge
#   home     203.0.113.12 ──────────┘
set -eu

stillwire=$(realpath "${1:-bin/stillwire}")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
names='berlin-1 berlin-2 home'
pids=

clean() {
	kill $pids 2>/dev/null || true
	wait
	for name in $names cable; do ip netns del "try-$name" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap clean EXIT INT TERM

cp "$here"/*.yaml "$dir"
ip netns add try-cable
ip -n try-cable link add bridge type bridge
ip -n try-cable link set bridge up
n=0
for name in $names; do
	n=$((n + 1))
	ip netns add "try-$name"
	ip -n "try-$name" link add lan type veth peer name "port$n" netns try-cable
	ip -n try-cable link set "port$n" master bridge up
	ip -n "try-$name" link set lo up
	ip -n "try-$name" addr add "203.0.113.$((9 + n))/24" dev lan
	[ "$name" = home ] || ip -n "try-$name" addr add "10.0.0.$n/24" dev lan
	ip -n "try-$name" link set lan up
	ip -n "try-$name" route add default via 203.0.113.1
	ip netns exec "try-$name" "$stillwire" agent --dir "$dir" --node "$name" \
		--state-dir "$dir/state/$name" >"$dir/$name.log" 2>&1 &
	pids="$pids $!"
done

status() { ip netns exec try-berlin-1 "$stillwire" status --state-dir "$dir/state/berlin-1" 2>/dev/null; }
tries=0
until [ "$(status | grep -c '"verdict": "Up"')" = 2 ]; do
	tries=$((tries + 1))
	[ $tries -lt 100 ] || { echo "the mesh did not come up:" >&2; cat "$dir"/*.log >&2; exit 1; }
	sleep 0.2
done

echo "== what berlin-1 is now (stillwire plan --agent)"
ip netns exec try-berlin-1 "$stillwire" plan --agent "$dir/state/berlin-1"
echo "== what berlin-1 did (its log)"
cat "$dir/berlin-1.log"
echo "== whom berlin-1 reaches (stillwire status)"
status
