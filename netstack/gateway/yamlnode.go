package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// yamlFile walks the nodes of one YAML file, for only nodes know their line.
type yamlFile struct {
	path string
	fail func(error)
}

func (y *yamlFile) at(n *yaml.Node, field string) origin {
	return origin{source: y.path + ":" + strconv.Itoa(n.Line), field: field}
}

func (y *yamlFile) refuse(n *yaml.Node, field, reason string) {
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = n.Value
	}
	y.fail(y.at(n, field).refuse(value, reason))
}

// field is one key that a mapping may have, and what is done with its value.
type field struct {
	name string
	read func(*yaml.Node)
}

// mapping hands each value of n to its field. A key that is unknown, given twice or of the
// wrong kind is a fault.
func (y *yamlFile) mapping(n *yaml.Node, what string, fields ...field) {
	if n = follow(n); isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		y.refuse(n, what, "must have fields: "+strings.Join(fieldNames(fields), ", "))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], follow(n.Content[i+1])
		j := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		switch line, twice := seen[key.Value]; {
		case j < 0:
			y.unknown(key, what, fields)
		case twice:
			y.refuse(key, what, fmt.Sprintf("is given in line %d already: keep one of them", line))
		case !isNull(value):
			fields[j].read(value)
		}
		seen[key.Value] = key.Line
	}
}

// unknown names the field that is not known and the one that is most likely meant. Keys are
// shown as they are; a value could be a secret in the wrong place and is not.
func (y *yamlFile) unknown(key *yaml.Node, what string, fields []field) {
	y.fail(y.at(key, what).refuse(key.Value, "is not a field here: "+meant(key.Value, fieldNames(fields))))
}

func fieldNames(fields []field) (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// list hands each item of n to read.
func (y *yamlFile) list(name string, read func(*yaml.Node)) field {
	return field{name, func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			y.refuse(n, name, "must be a list: put each entry on a line that begins with a dash")
			return
		}
		for _, item := range n.Content {
			read(follow(item))
		}
	}}
}

// text hands a plain value to set, whose error is the reason of a fault.
func (y *yamlFile) text(name string, set func(string) error) field {
	return field{name, func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			y.refuse(n, name, "must be one value")
			return
		}
		if err := set(n.Value); err != nil {
			y.fail(y.at(n, name).refuseFor(n.Value, err.Error(), err))
		}
	}}
}

func (y *yamlFile) boolean(name string, to *bool) field {
	return y.text(name, func(s string) error {
		switch s {
		case "true":
			*to = true
		case "false":
			*to = false
		default:
			return errors.New("is neither true nor false")
		}
		return nil
	})
}

const notTime = "is not a time from 0 up: write a number and a unit, such as 30s or 5m"

// duration reads "30s" or "5m". A bare 0 needs no unit; another number has none to guess.
func (y *yamlFile) duration(name string, to *time.Duration) field {
	return y.text(name, func(s string) (err error) {
		*to, err = time.ParseDuration(s)
		if err != nil || *to < 0 {
			return errors.New(notTime)
		}
		return nil
	})
}

// follow goes from an alias to what it stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
