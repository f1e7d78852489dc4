package file

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"

	"github.com/stillwire/stillwire/mesh"
)

// sourceName is what updates call this source.
const sourceName = "files"

// The words of the format.
const (
	apiVersion = "stillwire.dev/v1alpha1"
	kindNode   = "MeshNode"
	kindPeer   = "Peer"
	kindMesh   = "Mesh"
	kindList   = "List"
	none       = "none" // in internalIPs: there is none
	// On an object that is known by its status alone, where it is written down.
	annotationUndeclared = "stillwire.dev/undeclared"
)

// What bounds the work that a file can make.
const (
	maxFile     = 16 << 20  // bytes of a file
	maxStatus   = 256 << 10 // bytes of a status file, which any node may write: 2,500 learned endpoints
	maxMemory   = 256 << 20 // bytes of the facts that an agent keeps
	maxKeyFile  = 4 << 10   // bytes of a file that holds one key
	maxNodes    = 1 << 20   // YAML nodes that are looked at in a file, those behind an alias each time
	maxSaid     = 1 << 16   // of these in a status file
	maxProblems = 200       // of a file
	maxShown    = 80        // characters of a value that stand in a problem
)

// kinds are the words of problems for those of the format.
var kinds = map[string]mesh.Kind{kindNode: mesh.KindNode, kindPeer: mesh.KindPeer, kindMesh: mesh.KindMesh}

// name is what Kubernetes calls a DNS subdomain (RFC 1123).
var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// isName reports whether an object can be called so. It is also a safe name of a file.
func isName(s string) bool { return len(s) <= maxName && name.MatchString(s) }

// CheckName says what is wrong with the name of a node that shall publish its status, and what to
// do about it. Names of machines are often no names of objects: they have capitals.
func CheckName(name string) error {
	if isName(name) {
		return nil
	}
	_, f := objectName(name)
	remedy := f.remedy
	if lower := strings.ToLower(name); isName(lower) {
		remedy = "call the node " + lower
	}
	return fmt.Errorf("node name %q %s: %s", shown(name), f.detail, remedy)
}

// word is what a field may look like to be shown when it is unknown: anything else could be a
// key on a line of its own.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]{0,39}$`)

// keyLike is what a key in base64 or hexadecimal looks like.
var keyLike = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}=*`)

// shown is what may be told of a value, in one line.
func shown(s string) string {
	s = oneLine(keyLike.ReplaceAllString(s, "(hidden)"))
	if utf8.RuneCountInString(s) > maxShown {
		s = string([]rune(s)[:maxShown]) + "…"
	}
	return s
}

// oneLine replaces what would break a line or a terminal.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, s)
}

// meant names the word of the list that was most likely meant, else all of them.
func meant(written string, words []string) string {
	best, least := "", 1+max(2, len(written)/3)
	if len(written) < 4 {
		least = 2
	}
	for _, w := range words {
		if d := levenshtein.ComputeDistance(strings.ToLower(written[:min(len(written), maxShown)]), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	if best != "" || len(words) == 1 {
		return "write " + cmp.Or(best, words[0])
	}
	return "write one of " + strings.Join(words, ", ")
}
