//go:build race

package netstack

// The race detector makes gVisor ten times slower: less data shows as much.
const bulk, streamBulk = 2 << 20, 128 << 10
