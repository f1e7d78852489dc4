package mesh

import (
	"time"

	"github.com/stillwire/stillwire/device"
)

// rivalLasts is how long after it was last heard of another agent of this node's name counts as
// there.
const rivalLasts = 5 * time.Minute

// rival is another agent that publishes under this node's name, such as that of a copied machine.
// Each takes the other's words away, and the others see the node change its key each time: so
// this one publishes the more seldom the more often that was seen.
type rival struct {
	key   device.PublicKey
	seen  time.Time // last; zero: never
	times int
}

// watch notes what the source shows of this node, once the node itself was published.
func (r *rival) watch(shown, own device.PublicKey, now time.Time) {
	if shown == own || shown.IsZero() {
		r.key = device.PublicKey{} // the next time counts
		return
	}
	if r.key != shown {
		r.key, r.times = shown, r.times+1
	}
	r.seen = now
}

// there reports whether one was heard of lately, and forgets it when not.
func (r *rival) there(now time.Time) bool {
	if !r.seen.IsZero() && now.Sub(r.seen) >= rivalLasts {
		*r = rival{}
	}
	return r.times > 1 // once is what was there before this node had a new key
}

// pause is how long to wait between two words of this node's own.
func (r *rival) pause(now time.Time) time.Duration {
	if !r.there(now) {
		return 0
	}
	return retryAfter(r.times)
}

func (a *Agent) rivalProblem() Problem {
	return Problem{
		Subject{Kind: KindNode, Name: a.o.Node}, "metadata.name", a.o.Node, DuplicateName,
		"is published by another agent too, so that the others see it change its key again and again", "give one of the two machines another name with --node, and stop its agent first",
	}
}
