//go:build !race

package netstack

// How many bytes a test of one stream, and each of many streams, carries.
const bulk, streamBulk, halfBulk = 64 << 20, 1 << 20, 1 << 20
