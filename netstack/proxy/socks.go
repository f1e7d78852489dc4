package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// NewSOCKS5 makes a SOCKS5 proxy (RFC 1928): CONNECT, and UDP ASSOCIATE when there are
// Options.Packets; BIND is refused. Clients authenticate by user name and password (RFC 1929)
// if there are Options.Users, and must not otherwise. A SOCKS4 client is told that it is
// rejected. An error says what is missing in the options.
func NewSOCKS5(o Options) (*Server, error) { return newServer("socks5", serveSOCKS, o) }

// socksFlow is a flow whose client speaks SOCKS5.
type socksFlow struct {
	*flow
	in *bufio.Reader // of the client
}

func serveSOCKS(f *flow) {
	s := &socksFlow{flow: f, in: bufio.NewReaderSize(f.client, 512)}
	f.client.SetDeadline(time.Now().Add(f.o.HandshakeTimeout))
	if _, err := s.in.Peek(1); err != nil && !isTimeout(err) {
		return // it said nothing and has left: a look whether the port is open
	}
	command, d, err := s.negotiate()
	if err != nil {
		s.reject(err)
		return
	}
	f.client.SetDeadline(time.Time{})
	switch {
	case f.refusal != "":
		s.refuse(f.refusal, d, errors.New("too many connections"))
	case command == commandConnect:
		s.connect(d)
	case command == commandAssociate && f.o.Packets != nil:
		s.associate(d)
	default:
		s.refuse(ReasonCommand, d, fmt.Errorf("command %d is not served", command))
	}
}

// negotiate goes through greeting, authentication and request.
func (s *socksFlow) negotiate() (command byte, d destination, err error) {
	methods, err := readMethods(s.in)
	if err != nil {
		return 0, d, err
	}
	if err := s.authenticate(methods); err != nil {
		return 0, d, err
	}
	command, d, err = readRequest(s.in)
	if err != nil {
		return 0, d, &requestError{err}
	}
	return command, d, nil
}

// requestError is an error at a point where a reply can be given.
type requestError struct{ error }

func (e *requestError) Unwrap() error { return e.error }

// authenticate chooses the method and goes through with it.
func (s *socksFlow) authenticate(methods []byte) error {
	method := byte(methodNone)
	if !s.o.Users.IsZero() {
		method = methodUserPass
	}
	if !bytes.Contains(methods, []byte{method}) {
		s.client.Write([]byte{socks5Version, methodUnacceptable})
		return &socksError{ReasonAuth, fmt.Sprintf("client offers authentication methods %v, wanted is %d", methods, method)}
	}
	if _, err := s.client.Write([]byte{socks5Version, method}); err != nil || method == methodNone {
		return err
	}
	user, pass, err := readUserPass(s.in)
	if err != nil {
		return err
	}
	if !s.o.Users.Check(user, pass) {
		s.client.Write([]byte{authVersion, 1})
		return &socksError{ReasonAuth, fmt.Sprintf("wrong user name or password for user %q", user)}
	}
	s.log = s.log.With().Str("user", user).Logger()
	_, err = s.client.Write([]byte{authVersion, 0})
	return err
}

// reject ends a client that did not get as far as a request that can be served.
func (s *socksFlow) reject(err error) {
	r := socksReason(err)
	s.refused(r, "", err)
	var request *requestError
	switch {
	case errors.As(err, &request) && r != ReasonHandshake:
		s.client.Write(appendReply(nil, replyFor(r), netip.AddrPort{}))
	case r == ReasonSOCKS4:
		s.client.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0}) // "request rejected or failed"
	}
	farewell(s.client, s.o.LingerTimeout)
}

// refuse ends a client whose request is understood.
func (s *socksFlow) refuse(r Reason, d destination, err error) {
	s.refused(r, d.String(), err)
	s.reply(replyFor(r), netip.AddrPort{})
	farewell(s.client, s.o.LingerTimeout)
}

func (s *socksFlow) reply(code reply, bound netip.AddrPort) error {
	s.client.SetWriteDeadline(time.Now().Add(s.o.HandshakeTimeout))
	defer s.client.SetWriteDeadline(time.Time{})
	_, err := s.client.Write(appendReply(nil, code, bound))
	return err
}

// rest is the client's connection from after the request on.
func (s *socksFlow) rest() net.Conn {
	n := s.in.Buffered()
	if n == 0 {
		return s.client
	}
	head, _ := s.in.Peek(n)
	return &headed{Conn: s.client, head: head}
}

// connect serves CONNECT. A client that ends its connection before the reply does not want
// it any more.
func (s *socksFlow) connect(d destination) {
	target, client, err := s.dialAttended(s.rest(), "tcp", d.String(), true)
	if err != nil {
		s.refuse(DialReason(err), d, err)
		return
	}
	if err := s.reply(replySucceeded, addrPortOf(target.LocalAddr())); err != nil {
		s.refused(ReasonCanceled, d.String(), err)
		Abort(target)
		return
	}
	s.relay(client, target, d.String())
}

// associate serves UDP ASSOCIATE: datagrams are relayed for as long as the connection lasts.
func (s *socksFlow) associate(d destination) {
	a, err := newAssociation(s.flow, d)
	if err != nil {
		s.refuse(ReasonTarget, d, err)
		return
	}
	idle := startIdle(s.o.IdleTimeout, func() {
		s.s.counts.cut.add(ReasonIdle)
		Abort(s.client)
	})
	defer idle.stop()
	defer a.start(idle)()
	if err := s.reply(replySucceeded, a.bound()); err != nil {
		return
	}
	began := time.Now()
	s.log.Debug().Stringer("bound", a.bound()).Msg("association opened")
	io.Copy(io.Discard, s.in)
	s.log.Debug().Dur("took", time.Since(began)).Msg("association closed")
}
