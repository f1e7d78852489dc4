package device

import (
	"regexp"
	"strings"
	"unicode"
)

// maxName is how many characters of a peer's name are kept.
const maxName = 64

var (
	// assignedName is what exporters and people write: "# Name = laptop", "# friendly_name = laptop".
	assignedName = regexp.MustCompile(`(?i)^(?:name|peer[ _-]?name|friendly[ _-]?name|client)\s*[=:]\s*(.*)$`)
	// announcedName is what installers write above a peer: "### Client laptop",
	// "### begin laptop ###", "# BEGIN_PEER laptop".
	announcedName = regexp.MustCompile(`(?i)^(?:#+\s*(?:client|begin|peer)|begin_peer)\s+(.*?)[\s#]*$`)
	// trailingID is the number that wg-easy writes behind a name.
	trailingID = regexp.MustCompile(`(?:\s*\([0-9a-fA-F-]{36}\))+$`)
)

// nameIn returns the peer's name that a comment states, "" for any other comment. The
// comment is what follows the first "#" or ";".
func nameIn(comment string) string {
	if m := announcedName.FindStringSubmatch(strings.TrimSpace(comment)); m != nil {
		return cleanName(m[1])
	}
	comment = strings.TrimLeftFunc(comment, func(c rune) bool { return c == '#' || c == ';' || unicode.IsSpace(c) })
	if m := assignedName.FindStringSubmatch(strings.TrimSpace(comment)); m != nil {
		return cleanName(m[1])
	}
	return ""
}

// nameBeside returns the name in a comment on the [Peer] line itself, where any words will do.
func nameBeside(comment string) string {
	if name := nameIn(comment); name != "" {
		return name
	}
	if strings.Contains(comment, "=") {
		return ""
	}
	return cleanName(strings.Trim(comment, "#; \t"))
}

// cleanName makes one short printable line of a name, or "" of what may hold a key.
func cleanName(name string) string {
	name = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) && !unicode.IsSpace(c) {
			return -1
		}
		return c
	}, name)
	name = strings.Join(strings.Fields(name), " ")
	if r := []rune(name); len(r) > maxName {
		name = string(r[:maxName])
	}
	name = strings.TrimSpace(trailingID.ReplaceAllString(name, ""))
	if hideKeys(name) != name {
		return ""
	}
	return name
}
