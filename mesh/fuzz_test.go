package mesh

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzMakePlan looks for facts that the planner cannot stand, or from which it makes a device
// that cannot be, see TestEveryDeviceCanBeApplied.
func FuzzMakePlan(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		s := anyWorld(t)
		for _, n := range s.Nodes {
			plan, problems := MakePlan(s, n.Name, Options{})
			if _, err := plan.Device.Normalized(); err != nil {
				t.Fatalf("the device of %s: %v", n.Name, err)
			}
			_ = plan.String()
			for _, p := range problems {
				if p.Subject.Name == "" && p.Subject.Kind != KindMesh || p.Detail == "" {
					t.Fatalf("a problem that says too little: %+v", p)
				}
			}
		}
	}))
}
