package device

import (
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	wg "golang.zx2c4.com/wireguard/device"
)

// Timers of the WireGuard protocol (whitepaper, section 6.1).
const (
	rejectAfterTime = wg.RejectAfterTime // a session is dead this long after its handshake
	rekeyTimeout    = wg.RekeyTimeout    // between two tries of one handshake
)

// tracker knows what happens to handshakes, as it happens and without asking. The log is the
// one place where wireguard-go tells it, with the *wg.Peer as an argument; reading every
// counter of the device instead would cost 51 ms at 10,000 peers. A test holds a real device
// to the words that are matched here.
//
// It is called from wireguard-go's goroutines, which hold locks: it never blocks and never
// calls back.
type tracker struct {
	log  zerolog.Logger
	wake chan struct{} // size 1: something in news

	mu    sync.Mutex
	peers map[*wg.Peer]*track
	news  map[*wg.Peer]news

	strangers strangers
}

// track is what is known of one peer's handshakes.
type track struct {
	last    time.Time     // last authenticated handshake message; zero: never
	older   time.Time     // last of the handshake before that one
	count   uint64        // of them
	stood   time.Time     // last response that began a session, which wireguard-go counts thereafter
	tries   int           // initiations since then
	since   time.Time     // the first of them
	sent    time.Time     // the last of them that left; zero: none is under way
	err     error         // why the last one could not be sent
	replied bool          // a response was sent, and no initiation since
	void    bool          // and yet a response to our initiation was taken: see responded
	changed chan struct{} // closed when last moves

	waiting  int           // callers of Reach
	patience time.Duration // of them all with an initiation, before another voids its answer
}

// news is what the endpoint supervisor has to look at.
type news struct {
	completed bool // a handshake message came in: the live endpoint may have moved
	retried   bool // no answer for rekeyTimeout
	first     bool // the first initiation after silence
	unsent    bool // the initiation could not be sent at all
	crossed   bool // a session was begun in which nothing can be received
	renewal   bool // and there was another before it, that may go on
	met       bool // two first initiations met, and each side may have given up its own
}

func newTracker(log zerolog.Logger) *tracker {
	return &tracker{
		log:   log,
		wake:  make(chan struct{}, 1),
		peers: make(map[*wg.Peer]*track),
		news:  make(map[*wg.Peer]news),

		strangers: strangers{make(map[string]stranger), make(map[string]time.Time)},
	}
}

// logger is what wireguard-go logs to.
func (t *tracker) logger() *wg.Logger {
	return &wg.Logger{
		Verbosef: func(format string, args ...any) {
			if p := peerOf(args); p != nil {
				t.event(p, format, args)
			} else {
				t.turnedAway(format, args)
			}
			if e := t.log.Trace(); e.Enabled() {
				e.Msgf(format, args...)
			}
		},
		Errorf: func(format string, args ...any) {
			if p := peerOf(args); p != nil {
				t.event(p, format, args)
			}
			if e := t.log.Debug(); e.Enabled() {
				e.Msgf(format, args...)
			}
		},
	}
}

func peerOf(args []any) *wg.Peer {
	if len(args) == 0 {
		return nil
	}
	p, _ := args[0].(*wg.Peer)
	return p
}

// event matches on the tail of the format: the head is the peer.
func (t *tracker) event(p *wg.Peer, format string, args []any) {
	switch {
	case strings.HasSuffix(format, "Received handshake response"):
		t.responded(p)
	case strings.HasSuffix(format, "Received handshake initiation"):
		t.called(p)
	case strings.HasSuffix(format, "Sending handshake response"):
		t.tell(p, func(tr *track, _ *news) { tr.replied = true })
	case strings.HasSuffix(format, "Failed to create response message: %v"):
		t.tell(p, (*track).acquit)
	case strings.HasSuffix(format, "Failed to derive keypair: %v"):
		t.tell(p, (*track).cross)
	case strings.HasSuffix(format, "Sending handshake initiation"):
		t.initiated(p)
	case strings.HasSuffix(format, "retrying (try %d)"):
		t.tell(p, func(_ *track, n *news) { n.retried = true })
	case strings.HasSuffix(format, "Failed to send handshake initiation: %v"):
		err, _ := args[len(args)-1].(error)
		t.tell(p, func(tr *track, n *news) { tr.err, tr.sent, n.unsent = err, time.Time{}, true })
	}
}

// called follows an initiation of the other side.
func (t *tracker) called(p *wg.Peer) {
	t.tell(p, func(tr *track, n *news) {
		now := time.Now()
		n.met = n.met || tr.calling(now) && now.Sub(tr.sent) < rekeyTimeout
		tr.complete(n)
	})
}

func (tr *track) complete(n *news) {
	now := time.Now()
	if now.Sub(tr.last) >= rekeyTimeout {
		tr.older = tr.last
	}
	tr.last, tr.tries, tr.err, tr.void = now, 0, nil, false
	tr.count++
	close(tr.changed)
	tr.changed = make(chan struct{})
	n.completed = true
}

// responded follows a response to our initiation. When both sides initiate at once, two of
// wireguard-go's workers may take the other's initiation and the response at the same time.
// Then it sends its own response, gives up the index that the initiation had, and yet begins
// the session of that initiation: what comes in it finds no index. Or it begins none, and says
// that it failed to derive a keypair. On its own, the other side would notice after 15 s.
func (t *tracker) responded(p *wg.Peer) {
	if !t.get(p).replied {
		t.tell(p, (*track).stand)
		return
	}
	t.tell(p, (*track).cross)
}

func (tr *track) stand(n *news) {
	tr.complete(n)
	tr.stood = tr.last
}

// cross leaves it open whether a session stands that was there before: doubts looks.
func (tr *track) cross(n *news) {
	now := time.Now()
	before := tr.last
	if now.Sub(before) < rekeyTimeout {
		before = tr.older
	}
	n.crossed, n.renewal = true, track{last: before}.alive(now)
	tr.stood, tr.void = time.Time{}, true
	if !n.renewal {
		tr.last = time.Time{}
	}
}

// giveUp notes that no session stands.
func (t *tracker) giveUp(p *wg.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.trackLocked(p)
	tr.last, tr.older = time.Time{}, time.Time{}
}

// acquit follows a response that was announced and then not made, as the one to our own
// initiation had come first: that one's session is good.
func (tr *track) acquit(n *news) {
	tr.replied = false
	if tr.void {
		n.crossed = false
		tr.stand(n)
	}
}

func (t *tracker) initiated(p *wg.Peer) {
	t.tell(p, func(tr *track, n *news) {
		tr.tries++
		tr.sent, tr.err, tr.replied = time.Now(), nil, false
		if n.first = tr.tries == 1; n.first {
			tr.since = tr.sent
		}
	})
}

func (t *tracker) tell(p *wg.Peer, f func(*track, *news)) {
	t.mu.Lock()
	n := t.news[p]
	f(t.trackLocked(p), &n)
	t.news[p] = n
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tracker) trackLocked(p *wg.Peer) *track {
	tr := t.peers[p]
	if tr == nil {
		tr = &track{changed: make(chan struct{}), patience: firstTry}
		t.peers[p] = tr
	}
	return tr
}

// get returns a copy; its changed channel closes at the next handshake.
func (t *tracker) get(p *wg.Peer) track {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *t.trackLocked(p)
}

// await and leave count who waits for a peer. The first has little patience.
func (t *tracker) await(p *wg.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.trackLocked(p)
	if tr.waiting++; tr.waiting == 1 {
		tr.patience = firstTry
	}
}

func (t *tracker) leave(p *wg.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tr := t.peers[p]; tr != nil {
		tr.waiting--
	}
}

// call is what one who waits for a peer is to do.
type call int

const (
	callNot   call = iota // an initiation is under way
	callFirst             // none is: wireguard-go may send one
	callAnew              // the one under way is given up
)

// claim tells one of those who wait for a peer to call it when the patience with it is at an
// end, and the others how long it still holds: a new initiation voids the answer to the last
// one, so there is one patience for all of them, and it doubles.
func (t *tracker) claim(p *wg.Peer) (due call, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr, now := t.trackLocked(p), time.Now()
	if tr.sent.IsZero() {
		return callFirst, tr.patience
	}
	if left := tr.patience - now.Sub(tr.sent); left > 0 {
		return callNot, left
	}
	tr.sent, tr.patience = now, min(2*tr.patience, rekeyTimeout)
	return callAnew, tr.patience
}

// take returns what happened since the last call.
func (t *tracker) take() map[*wg.Peer]news {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.news
	t.news = make(map[*wg.Peer]news)
	return n
}

// forget drops a peer that wireguard-go has removed.
func (t *tracker) forget(p *wg.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.peers, p)
	delete(t.news, p)
}

// alive reports whether a session of that handshake can still carry packets.
func (tr track) alive(now time.Time) bool {
	return !tr.last.IsZero() && now.Sub(tr.last) < rejectAfterTime
}

// calling reports whether handshakes go unanswered and no session stands.
func (tr track) calling(now time.Time) bool { return tr.tries > 0 && !tr.alive(now) }
