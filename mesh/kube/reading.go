package kube

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// reading is one object that is being read.
type reading struct {
	subject  mesh.Subject
	problems []mesh.Problem
	lost     bool // the object is left out
}

func (r *reading) report(field, value string, f *scan.Fault, instead string) {
	r.problems = append(r.problems, mesh.Problem{
		Subject: r.subject, Field: field, Value: value, Reason: mesh.Invalid,
		Detail: f.Detail + ", so " + instead, Remedy: f.Remedy,
	})
}

// refuseKey is for a value that is or may be a secret, which costs the object.
func (r *reading) refuseKey(field string, f *scan.Fault) {
	r.lost = true
	r.report(field, "", f, fmt.Sprintf("the %s is left out", r.subject.Kind))
}

// one reads a value; "" is none.
func one[T any](r *reading, field, text string, parse func(string) (T, *scan.Fault)) (got T) {
	if text == "" {
		return got
	}
	value, f := parse(text)
	if f != nil {
		r.report(field, scan.Shown(text), f, fmt.Sprintf("the %s goes on without it", r.subject.Kind))
		return got
	}
	return value
}

// number reads what the API server holds as a number; 0 is none.
func number[T any](r *reading, field string, n int32, parse func(string) (T, *scan.Fault)) (got T) {
	if n == 0 {
		return got
	}
	return one(r, field, strconv.Itoa(int(n)), parse)
}

// many reads a list without what cannot be read.
func many[T any](r *reading, field string, texts []string, parse func(string) (T, *scan.Fault)) (list []T) {
	for _, text := range texts {
		value, f := parse(text)
		if f != nil {
			r.report(field, scan.Shown(text), f, "this entry is left out")
			continue
		}
		list = append(list, value)
	}
	return list
}

func identity(kind string, m *metav1.ObjectMeta) mesh.Identity {
	return mesh.Identity{Name: m.Name, UID: string(m.UID), Created: m.CreationTimestamp.UTC(), Source: kind + "/" + m.Name}
}
