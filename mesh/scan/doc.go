// Package scan reads the values that stand in the fields of objects, whatever the objects come
// from, and says of a bad one what is wrong and what to write instead. A file and a cluster so read
// a value alike and refuse it with the same words.
//
// It is pure and keeps nothing. What it says of a value never shows what looks like a key.
package scan
