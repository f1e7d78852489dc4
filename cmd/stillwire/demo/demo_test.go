package demo

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// beat leaves room for the race detector on a busy machine.
const beat = 100 * time.Millisecond

func TestChangesLoseNothing(t *testing.T) {
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{Changes: 1000, Beat: beat, Seed: 1, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean() || r.Changes < 1000 || r.Packets < 1000 {
		t.Errorf("%s\n%s", r, out.String())
	}
	for _, want := range []string{"bad configuration", "nothing differs", "NAT takes a new port", "name moves"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no step of the kind %q:\n%s", want, out.String())
		}
	}
	if !regexp.MustCompile(`^demo: changes=\d+ packets=\d+ lost=0 resets=0 handshakes_extra=-?\d+$`).MatchString(r.String()) {
		t.Errorf("last line %q", r)
	}
}

// The same traffic and the same counting show the loss where there is one.
func TestWholeReplacesLose(t *testing.T) {
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{Changes: 50, Seed: 1, Naive: true, Beat: beat, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	if r.Clean() || r.Lost == 0 || r.Handshakes == 0 {
		t.Errorf("%s\n%s", r, out.String())
	}
}
