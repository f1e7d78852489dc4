//go:build race

package netstack

// The race detector makes gVisor ten times slower: less data shows as much.
const bulk, streamBulk, halfBulk = 512 << 10, 32 << 10, 128 << 10
